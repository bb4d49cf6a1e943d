-- The load: one POST, repeated. Arguments: a file with the body, then headers as "name: value".
function init(args)
  local file = assert(io.open(args[1], 'rb'))
  wrk.method, wrk.body = 'POST', file:read('*a')
  file:close()
  for i = 2, #args do
    local name, value = args[i]:match('^(.-): (.*)$')
    wrk.headers[name] = value
  end
end

function done(summary)
  local errors = summary.errors
  io.write(string.format('counts %d %d\n', summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
