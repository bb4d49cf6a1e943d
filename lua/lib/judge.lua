-- judge: whether an endpoint may be used for what is asked, and what it has in hand.
-- @include lib/circuit
-- @include lib/conn
-- @include lib/number

-- Takes out of fields what claims that have ended still seem to hold.
local function give_back(back, names, fields)
  for i, name in ipairs(names) do
    fields[i] = back[name] and whole(fields[i]) - back[name] or fields[i]
  end
end

-- What is known of an endpoint. A healthy one has no circuit, and most are.
local function look_at(ask, location)
  local names = { location .. ':circuit', location .. ':conn', location .. ':inflight' }
  if ask.counts_prefill then
    names[4] = location .. ':prefill_tokens'
    names[5] = location .. ':own:' .. ask.caller
    names[6] = location .. ':elephants'
    names[7] = location .. ':generation'
  end
  local fields = redis.call('HMGET', ask.endpoints, unpack(names))
  if ask.given_back then
    give_back(ask.given_back, names, fields)
  end
  return {
    circuit = fields[1],
    conn = fields[2],
    inflight = whole(fields[3]),
    prefill_tokens = whole(fields[4]),
    own_tokens = whole(fields[5]),
    elephants = whole(fields[6]),
    generation = whole(fields[7]),
  }
end

-- What must be known of every endpoint to compare them, in one call.
local function look_at_all(ask)
  local names, rows, own = {}, {}, ':own:' .. ask.caller
  for index = 1, #ask.locations do
    local location, last = ask.locations[index], 5 * index
    names[last - 4] = location .. ':circuit'
    names[last - 3] = location .. ':conn'
    names[last - 2] = location .. ':prefill_tokens'
    names[last - 1] = location .. own
    names[last] = location .. ':prefill_rate'
  end
  local fields = names[1] and redis.call('HMGET', ask.endpoints, unpack(names)) or {}
  if ask.given_back then
    give_back(ask.given_back, names, fields)
  end
  for index = 1, #ask.locations do
    local last = 5 * index
    rows[index] = {
      circuit = fields[last - 4],
      conn = fields[last - 3],
      prefill_tokens = whole(fields[last - 2]),
      own_tokens = whole(fields[last - 1]),
      prefill_rate = fields[last],
    }
  end
  return rows
end

-- Returns the endpoint's row when it may be used, else false, the reason and when that can change.
-- It is read unless given.
local function judge(ask, location, row)
  if ask.tried[location] then
    return false, 'already_attempted', 0
  end
  row = row or look_at(ask, location)
  if ask.order == 'pinned' then
    return row
  end
  if row.circuit then
    local rest = redis.call('HMGET', ask.endpoints,
      location .. ':opened_at_ms', location .. ':probe', location .. ':probe_until_ms')
    row.opened_at_ms, row.probe_until_ms = rest[1], rest[3]
    row.probe = not (ask.ended and ask.ended[rest[2]]) and rest[2]
  end
  local reason, left_ms, takes_probe = judge_circuit(row, ask.now, ask.cooldown_ms)
  if reason then
    return false, reason, left_ms
  end
  local blocked_ms = blocked_here_ms(row.conn, ask.replica, ask.now, ask)
  if blocked_ms > 0 then
    return false, 'unreachable_from_here', blocked_ms
  end
  row.takes_probe = takes_probe
  return row
end
