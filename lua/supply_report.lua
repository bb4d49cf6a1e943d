#!lua
-- supply_report: put down how much of a quota its provider says is used. What was taken later than
-- it was asked counts on top of that.
--
-- KEYS[1] quota  hash  what its provider has reported
-- KEYS[2] taken  zset  claim id -> when it has taken of the quota, in ms
-- ARGV[1] epoch        int
-- ARGV[2] used         string  decimal
-- ARGV[3] limit        string  decimal
-- ARGV[4] reset_at_ms  int     when it begins anew, 0 for not known
-- ARGV[5] as_of_ms     int     when the provider was asked
-- RETURNS [status]
--         status "done" | "fenced"
-- @include lib/number
-- @include lib/quota

-- bind
local quota, taken, as_of_ms = KEYS[1], KEYS[2], ARGV[5]

-- read
if whole(redis.call('HGET', quota, 'epoch')) > tonumber(ARGV[1]) then
  return { 'fenced' }
end

-- write
redis.call('HSET', quota, 'used', ARGV[2], 'limit', ARGV[3], 'reset_at_ms', ARGV[4],
  'as_of_ms', as_of_ms, 'epoch', ARGV[1])
redis.call('PEXPIRE', quota, QUOTA_TTL_MS)
redis.call('ZREMRANGEBYSCORE', taken, '-inf', as_of_ms)
return { 'done' }
