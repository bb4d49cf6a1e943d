#!lua
-- admit: choose an endpoint for one attempt and claim room on it, in one step.
--
-- Endpoints are drawn by weight and judged one by one: one that may not be used is struck out with
-- its reason and the draw repeated, which gives the distribution of filtering first. A refusal
-- writes nothing on its own behalf. Repeating a claim that stands answers the same endpoint.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- KEYS[4] reaped     zset  id of an expired claim -> when to forget it, in ms
-- ARGV[1] claim              string   <replica>.<number>
-- ARGV[2] candidates         string   "<location> <weight> ..." in declaration order
-- ARGV[3] tried              string   "<location> ..." that this request has tried already
-- ARGV[4] order              string   "draw" | "declared" | "pinned" (no circuit, no probe)
-- ARGV[5] draws              string   "<number in [0, 1)> ...", as many as there are candidates, or
--                                     fewer: when they run out the answer is "short"
-- ARGV[6] lease_ms           int
-- ARGV[7] failure_threshold  int
-- ARGV[8] cooldown_ms        int
-- RETURNS [status, location, probe, inflight, drawn, retry_after_ms, reasons]
--         status "admitted" | "refused" | "short"
--         reasons "<location>=<reason> ..." of those struck out
-- @include lib/number
-- @include lib/clock
-- @include lib/claim
-- @include lib/reap
-- @include lib/tombstone
-- @include lib/circuit
-- @include lib/conn

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local claim, order = ARGV[1], ARGV[4]
local lease_ms = tonumber(ARGV[6])
local policy = { failure_threshold = tonumber(ARGV[7]), cooldown_ms = tonumber(ARGV[8]) }
local replica = replica_of(claim)

local locations, weights = {}, {}
for location, weight in string.gmatch(ARGV[2], '(%S+) (%S+)') do
  locations[#locations + 1] = location
  weights[#weights + 1] = tonumber(weight)
end
local tried = {}
for location in string.gmatch(ARGV[3], '%S+') do
  tried[location] = true
end
local next_number = string.gmatch(ARGV[5], '%S+')

-- reap
local now, stepped = model_clock(endpoints)
reap_due(endpoints, claims, claimed, reaped, now, 4)

local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if held then
  local inflight = whole(redis.call('HGET', endpoints, held.location .. ':inflight'))
  return { 'admitted', held.location, held.probe and 1 or 0, inflight, 0, 0, '' }
end

-- judge: may this endpoint be used now?
local function look_at(location)
  local fields = redis.call('HMGET', endpoints,
    location .. ':inflight', location .. ':circuit', location .. ':opened_at_ms',
    location .. ':probe', location .. ':probe_until_ms', location .. ':conn')
  return {
    inflight = whole(fields[1]),
    circuit = fields[2],
    opened_at_ms = fields[3],
    probe = fields[4],
    probe_until_ms = fields[5],
    conn = fields[6],
  }
end

-- Returns the endpoint's row when it may be used, else nil, the reason and when that can change.
local function judge(location)
  if tried[location] then
    return nil, 'already_attempted', 0
  end
  local row = look_at(location)
  if order == 'pinned' then
    return row
  end
  local reason, left_ms, takes_probe = judge_circuit(row, now, policy.cooldown_ms)
  if reason then
    return nil, reason, left_ms
  end
  local blocked_ms = blocked_here_ms(row.conn, replica, now, policy)
  if blocked_ms > 0 then
    return nil, 'unreachable_from_here', blocked_ms
  end
  row.takes_probe = takes_probe
  return row
end

-- draw: the first index at which the running sum of the weights left reaches u times their total;
-- rounding and all-zero weights fall to the last one.
local left = {}
for i = 1, #locations do
  left[i] = i
end
local drawn = 0

-- Returns nil when the numbers have run out.
local function next_place()
  if order ~= 'draw' then
    return 1
  end
  local number = next_number()
  if not number then
    return nil
  end
  local total = 0
  for _, index in ipairs(left) do
    total = total + weights[index]
  end
  drawn = drawn + 1
  local threshold, sum = tonumber(number) * total, 0
  if total > 0 then
    for place, index in ipairs(left) do
      sum = sum + weights[index]
      if threshold <= sum then
        return place
      end
    end
  end
  return #left
end

local chosen, row
local reasons, soonest_ms = {}, 0
while #left > 0 and not chosen do
  local place = next_place()
  if not place then
    return { 'short', '', 0, 0, drawn, 0, '' }
  end
  local location = locations[left[place]]
  local usable, reason, left_ms = judge(location)
  if usable then
    chosen, row = location, usable
  else
    reasons[#reasons + 1] = location .. '=' .. reason
    if left_ms > 0 and (soonest_ms == 0 or left_ms < soonest_ms) then
      soonest_ms = left_ms
    end
    table.remove(left, place)
  end
end
if not chosen then
  return { 'refused', '', 0, 0, drawn, math.ceil(soonest_ms), table.concat(reasons, ' ') }
end

-- claim
local inflight = row.inflight + 1
redis.call('ZADD', claims, now + lease_ms, claim)
redis.call('HSET', claimed, claim,
  write_holding({ location = chosen, lease_ms = lease_ms, probe = row.takes_probe and 1 }))
remove_tombstone(reaped, claim)
redis.call('HSET', endpoints, chosen .. ':inflight', inflight)
if row.takes_probe then
  redis.call('HSET', endpoints, chosen .. ':circuit', 'half_open', chosen .. ':probe', claim,
    chosen .. ':probe_until_ms', now + policy.cooldown_ms)
end
write_clock(endpoints, now, stepped)
keep_claims(endpoints, claims, claimed)
local probe = row.takes_probe and 1 or 0
return { 'admitted', chosen, probe, inflight, drawn, 0, table.concat(reasons, ' ') }
