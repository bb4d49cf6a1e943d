-- judge: whether an endpoint may be used for what is asked, and what it has in hand.
-- @include lib/circuit
-- @include lib/conn
-- @include lib/cooldown
-- @include lib/limit
-- @include lib/number

-- Fields of the endpoints, without what claims that have ended still seem to hold.
local function read_fields(ask, names)
  local fields, back = redis.call('HMGET', ask.endpoints, unpack(names)), ask.given_back
  if back then
    for i, name in ipairs(names) do
      fields[i] = back[name] and whole(fields[i]) - back[name] or fields[i]
    end
  end
  return fields
end

-- Puts into limits what is taken of them, of fields that follow so many others.
local function put_texts(limits, fields, before)
  for i, limit in ipairs(limits) do
    limit.text = fields[before + i]
  end
end

-- What is known of an endpoint, and what is taken of its limits, if it has any. A healthy one has
-- no circuit, and most are.
local function look_at(ask, location, limits)
  local names = { location .. ':circuit', location .. ':conn', location .. ':cooldown',
    location .. ':inflight' }
  if ask.counts_prefill then
    names[5] = location .. ':prefill_tokens'
    names[6] = location .. ':own:' .. ask.caller
    names[7] = location .. ':elephants'
    names[8] = location .. ':generation'
  end
  local before = #names
  if limits then
    add_names(names, location, limits)
  end
  local fields = read_fields(ask, names)
  if limits then
    put_texts(limits, fields, before)
  end
  local row = { circuit = fields[1], conn = fields[2], cooldown = fields[3],
    inflight = whole(fields[4]), prefill_tokens = 0, own_tokens = 0, elephants = 0, generation = 0 }
  if ask.counts_prefill then
    row.prefill_tokens, row.own_tokens = whole(fields[5]), whole(fields[6])
    row.elephants, row.generation = whole(fields[7]), whole(fields[8])
  end
  return row
end

-- What is taken of the limits of an endpoint that has been looked at already.
local function read_taken(ask, location, limits)
  local names = {}
  add_names(names, location, limits)
  put_texts(limits, read_fields(ask, names), 0)
end

-- What must be known of every endpoint to compare them, in one call.
local function look_at_all(ask)
  local names, rows, own = {}, {}, ':own:' .. ask.caller
  for index = 1, #ask.locations do
    local location, last = ask.locations[index], 6 * index
    names[last - 5] = location .. ':circuit'
    names[last - 4] = location .. ':conn'
    names[last - 3] = location .. ':cooldown'
    names[last - 2] = location .. ':prefill_tokens'
    names[last - 1] = location .. own
    names[last] = location .. ':prefill_rate'
  end
  local fields = names[1] and read_fields(ask, names) or {}
  for index = 1, #ask.locations do
    local last = 6 * index
    rows[index] = {
      circuit = fields[last - 5],
      conn = fields[last - 4],
      cooldown = fields[last - 3],
      prefill_tokens = whole(fields[last - 2]),
      own_tokens = whole(fields[last - 1]),
      prefill_rate = fields[last],
    }
  end
  return rows
end

-- Why an endpoint's health keeps requests away, nil when it does not, and in how many ms that can
-- change; third, whether using it takes the half-open probe.
local function judge_health(ask, location, row)
  if row.circuit then
    local rest = redis.call('HMGET', ask.endpoints,
      location .. ':opened_at_ms', location .. ':probe', location .. ':probe_until_ms')
    row.opened_at_ms, row.probe_until_ms = rest[1], rest[3]
    row.probe = not (ask.ended and ask.ended[rest[2]]) and rest[2]
  end
  local reason, left_ms, takes_probe = judge_circuit(row, ask.now, ask.cooldown_ms)
  if reason then
    return reason, left_ms, false
  end
  local cooling_ms = row.cooldown and cooldown_left(row.cooldown, ask.now) or 0
  if cooling_ms > 0 then
    return 'cooldown', cooling_ms, false
  end
  local blocked_ms = row.conn and blocked_here_ms(row.conn, ask.replica, ask.now, ask) or 0
  if blocked_ms > 0 then
    return 'unreachable_from_here', blocked_ms, false
  end
  return nil, 0, takes_probe
end

-- Returns the endpoint's row when it may be used, else false, the reason and when that can change.
-- It is read unless given. An operator's request is kept away by limits alone.
local function judge(ask, index, seen)
  local location = ask.locations[index]
  if ask.tried[location] then
    return false, 'already_attempted', 0
  end
  local limits = ask.limits[index] ~= '' and read_endpoint_limits(ask.limits[index])
  local row = seen or look_at(ask, location, limits)
  if ask.order ~= 'pinned' then
    local reason, left_ms, takes_probe = judge_health(ask, location, row)
    if reason then
      return false, reason, left_ms
    end
    row.takes_probe = takes_probe
  end
  if limits then
    if seen then
      read_taken(ask, location, limits)
    end
    local reason, left_ms = judge_limits(ask, limits)
    if reason then
      return false, reason, left_ms
    end
    row.limits = limits
  end
  return row
end
