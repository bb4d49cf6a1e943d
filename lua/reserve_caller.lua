#!lua
-- reserve_caller: take room for one request of all limits that its caller is under, or of none.
--
-- Every limit is judged before any is taken. A refusal names the limit that keeps the request
-- waiting longest, and writes nothing on its own behalf. A shadow limit refuses nothing: what it
-- would refuse takes nothing of it and is counted. Repeating a reservation that stands takes
-- nothing again.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- KEYS[4] lapsed        zset  id of an expired reservation -> when to forget it, in ms
-- ARGV[1] reservation  string   <replica>.<number>
-- ARGV[2] lease_ms     int
-- ARGV[3] scopes       string   "<scope> <rpm> <tpm> <parallel> <budget> <duration_ms> ..."
-- ARGV[4] window_ms    int      for how long requests and tokens count
-- ARGV[5] tokens       int      that the request may use
-- ARGV[6] nanousd      int      that it may cost
-- RETURNS [status, limit, left, retry_after_ms, held, fits_again, rpm, rpm_left, rpm_reset_ms,
--          tpm, tpm_left, tpm_reset_ms]
--         status "reserved" | "refused" | "spent" (refused, and the money is gone for good)
--         limit "<scope> <kind>", left: of the one that refuses; retry_after_ms 0: never
--         held what the reservation holds, as it is to be told when it ends
--         fits_again how many more like it would be granted now, at most 1000 are told
--         rpm, tpm: of the limits of which the least is left; -1 where there is none
-- @include lib/clock
-- @include lib/number
-- @include lib/reservation
-- @include lib/scopes
-- @include lib/tombstone
-- @include lib/budget
-- @include lib/window

-- bind
local limits, reservations, reserved, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reservation, lease_ms = ARGV[1], tonumber(ARGV[2])
local needs =
  { rpm = 1, tpm = tonumber(ARGV[5]), parallel = 1, budget = math.max(tonumber(ARGV[6]), 1) }
local BUSY_MS = 1000 -- in which a place, or money that others hold, may come back

-- reap
local now, stepped = model_clock(limits)
reap_reservations(limits, reservations, reserved, lapsed, now, 4)

-- read
local asked, names = read_limits(ARGV[3])
local texts = #names > 0 and redis.call('HMGET', limits, unpack(names))
look_at_limits(asked, texts, now, tonumber(ARGV[4]))
local held = redis.call('HGET', reserved, reservation)

-- In how many ms a limit will have room for the request, 0 for never; nil when it has room now.
local function judge_limit(limit)
  local need = needs[limit.kind]
  local excess = limit.taken + need - limit.most
  if excess <= 0 then
    return nil
  end
  if need > limit.most then
    return 0
  elseif limit.window then
    return frees_in_ms(limit.window, excess, now)
  elseif limit.budget and limit.budget.spent + need > limit.most then
    return renewed_in_ms(limit, now)
  end
  return BUSY_MS
end

-- Of the limits of a kind that refuse, the one of which the least is left.
local function tightest(kind)
  local found
  for _, limit in ipairs(asked) do
    local is_counted = limit.kind == kind and not limit.is_shadow
    if is_counted and (not found or limit.most - limit.taken < found.most - found.taken) then
      found = limit
    end
  end
  if not found then
    return -1, 0, 0
  end
  return found.most, math.max(found.most - found.taken, 0), renewed_in_ms(found, now)
end

-- What there is room for now: the end of every answer.
local function room()
  local fits_again = 1000
  for _, limit in ipairs(asked) do
    if not limit.is_shadow then
      local left = math.max(limit.most - limit.taken, 0)
      fits_again = math.min(fits_again, math.floor(left / math.max(needs[limit.kind], 1)))
    end
  end
  local rpm, rpm_left, rpm_reset_ms = tightest('rpm')
  return fits_again, rpm, rpm_left, rpm_reset_ms, tightest('tpm')
end

if held then
  return { 'reserved', '', 0, 0, held, room() }
end

-- decide
local binding, longest_ms
for _, limit in ipairs(asked) do
  local in_ms = judge_limit(limit)
  limit.refuses = in_ms ~= nil
  if in_ms and not limit.is_shadow then
    in_ms = in_ms > 0 and in_ms or math.huge
    if not binding or in_ms > longest_ms then
      binding, longest_ms = limit, in_ms
    end
  end
end
if binding then
  local name, left = binding.scope .. ' ' .. binding.kind, math.max(binding.most - binding.taken, 0)
  local retry_after_ms = longest_ms < math.huge and longest_ms or 0
  if binding.budget and binding.budget.spent + needs.budget > binding.most then
    return { 'spent', name, left, retry_after_ms, '', room() }
  end
  return { 'refused', name, left, retry_after_ms, '', room() }
end

-- take
local holding = { lease_ms = ARGV[2], at_ms = spell(now), tokens = ARGV[5], nanousd = ARGV[6] }
local fields, ttl_ms = { 'at_ms', spell(now) }, LIMITS_TTL_MS
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
for i, limit in ipairs(asked) do
  local kind = limit.kind
  if limit.refuses then -- the shadow of a refusal
    local counter = string.format('%s:would_refuse_%s', limit.scope, kind)
    set(counter, spell(whole(redis.call('HGET', limits, counter)) + 1))
  else
    holding[kind] = holding[kind] and holding[kind] .. ',' .. limit.scope or limit.scope
    limit.taken = limit.taken + needs[kind]
    if limit.window then
      take(limit.window, needs[kind], now)
      set(names[i], write_window(limit.window))
    elseif limit.budget then
      limit.budget.held = limit.budget.held + tonumber(ARGV[6])
      set(names[i], write_budget(limit.budget))
    else
      set(names[i], spell(limit.taken))
    end
  end
  if limit.budget then
    ttl_ms = limit.duration_ms > 0 and math.max(ttl_ms, 2 * limit.duration_ms) or math.huge
  end
end
held = write_reservation(holding)
local left_ms = redis.call('PTTL', limits)
redis.call('ZADD', reservations, spell(now + lease_ms), reservation)
redis.call('HSET', reserved, reservation, held)
redis.call('HSET', limits, unpack(fields))
remove_tombstone(lapsed, reservation)
count_step(limits, stepped)
keep_limits(limits, left_ms, ttl_ms)
if redis.call('HLEN', reserved) == 1 then -- of those that stand longer `renew_caller` keeps it
  redis.call('PEXPIRE', reservations, RESERVATIONS_TTL_MS)
  redis.call('PEXPIRE', reserved, RESERVATIONS_TTL_MS)
end
return { 'reserved', '', 0, 0, held, room() }
