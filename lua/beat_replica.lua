#!lua
-- beat_replica: say that a replica lives, and learn how many do and what ids are keyed with.
--
-- The salt that came first stands, and each beat puts it back where it was lost.
--
-- KEYS[1] replicas  hash  replica id -> "seen_ms=... host=... version=... config=... secret=..."
-- KEYS[2] salt      string  what ids are keyed with where there is no secret
-- ARGV[1] replica  string
-- ARGV[2] about    string   "host=... version=... config=... secret=...", "" when it leaves
-- ARGV[3] ttl_ms   int      a replica unseen for longer is not live
-- ARGV[4] salt     string   to be used unless there is one, "" when a secret is used
-- RETURNS [status, live_replicas, salt]
--         status "done"
-- @include lib/time

-- bind
local replicas = KEYS[1]
local replica, about, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FORGET_AFTER_MS = math.max(60000, 10 * ttl_ms)

-- read
local now = server_ms()
local live = about ~= '' and 1 or 0
local dead = {}
local known = redis.call('HGETALL', replicas)
for i = 1, #known, 2 do
  if known[i] ~= replica then
    local seen_ms = tonumber(string.match(known[i + 1], 'seen_ms=(%d+)')) or 0
    local age = math.abs(now - seen_ms)
    if age < ttl_ms then
      live = live + 1
    elseif age > FORGET_AFTER_MS then
      dead[#dead + 1] = known[i]
    end
  end
end

-- write
for _, id in ipairs(dead) do
  redis.call('HDEL', replicas, id)
end
if about ~= '' then
  redis.call('HSET', replicas, replica, string.format('seen_ms=%.0f %s', now, about))
else
  redis.call('HDEL', replicas, replica)
end
redis.call('PEXPIRE', replicas, FORGET_AFTER_MS)
local salt = ARGV[4]
if salt ~= '' then
  redis.call('SET', KEYS[2], salt, 'NX')
  salt = redis.call('GET', KEYS[2])
end
return { 'done', live, salt }
