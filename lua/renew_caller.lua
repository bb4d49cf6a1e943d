#!lua flags=allow-oom
-- renew_caller: lengthen the leases of reservations that are still in use.
--
-- Answers the ids it does not know: their holder puts back those that still run.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- ARGV[1] ids       string   "<reservation> ...", at most 128
-- ARGV[2] lease_ms  int
-- RETURNS [status, unknown]
--         status "done"; unknown "<reservation> ..."
-- @include lib/clock
-- @include lib/reservation

-- bind
local limits, reservations, reserved = KEYS[1], KEYS[2], KEYS[3]
local lease_ms = tonumber(ARGV[2])

-- read, write: a key's TTL first, since servers before 7 let a script go on once it has written
-- something, also when they are out of memory
redis.call('PEXPIRE', reservations, RESERVATIONS_TTL_MS)
redis.call('PEXPIRE', reserved, RESERVATIONS_TTL_MS)
keep_limits(limits, redis.call('PTTL', limits), LIMITS_TTL_MS)
local now = model_clock(limits)
local unknown = {}
for reservation in string.gmatch(ARGV[1], '%S+') do
  local stands = redis.call('ZSCORE', reservations, reservation)
  if stands and redis.call('HEXISTS', reserved, reservation) == 1 then
    redis.call('ZADD', reservations, 'XX', now + lease_ms, reservation)
  else
    unknown[#unknown + 1] = reservation
  end
end
return { 'done', table.concat(unknown, ' ') }
