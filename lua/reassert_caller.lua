#!lua
-- reassert_caller: put back a reservation whose record was lost while its request still runs.
--
-- Never refused. The place in parallel is taken again. What a lapsed one has taken of windows and
-- budgets still stands there; of one that went with the store nothing does, so that what it uses is
-- charged when it ends. Repeating it changes nothing.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- KEYS[4] lapsed        zset  id of an expired reservation -> when to forget it, in ms
-- ARGV[1] reservation  string   <replica>.<number>
-- ARGV[2] held         string   what it holds, as reserve_caller answered
-- ARGV[3] lease_ms     int
-- RETURNS [status, held]
--         status "done" | "again"; held what it holds now
-- @include lib/clock
-- @include lib/number
-- @include lib/reservation
-- @include lib/tombstone

-- bind
local limits, reservations, reserved, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reservation, held, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local holding = read_reservation(held)
if not holding then
  return redis.error_reply('BADARG held: ' .. held)
end

local function take_places()
  local names, texts = fields_of(limits, holding, 'parallel')
  for i, name in ipairs(names) do
    redis.call('HSET', limits, name, spell(whole(texts[i]) + 1))
  end
end

-- read, decide
local now, stepped = model_clock(limits)
local left_ms = redis.call('PTTL', limits)
local standing = redis.call('HGET', reserved, reservation)
local is_leased = redis.call('ZSCORE', reservations, reservation)
if standing and is_leased then
  return { 'again', standing }
end
if not standing and not is_leased then
  if find_tombstone(lapsed, reservation, now) then
    holding.is_spent = '1'
  else
    holding.tokens, holding.nanousd, holding.rpm = '0', '0', nil
  end
  held = write_reservation(holding)
end

-- write
redis.call('ZADD', reservations, spell(now + lease_ms), reservation)
if not standing then
  redis.call('HSET', reserved, reservation, held)
  if not is_leased then
    take_places()
  end
end
remove_tombstone(lapsed, reservation)
write_clock(limits, now, stepped)
keep_limits(limits, left_ms, LIMITS_TTL_MS)
redis.call('PEXPIRE', reservations, RESERVATIONS_TTL_MS)
redis.call('PEXPIRE', reserved, RESERVATIONS_TTL_MS)
return { 'done', standing or held }
