#!lua flags=allow-oom
-- lease: become the cluster's coordinator, stay it, or cease to be it.
--
-- Who comes when nobody has the lease gets it under a new epoch, higher than any before: also when
-- the record was lost, since it is no less than the time in seconds. Its holder keeps the epoch,
-- however late it comes, unless somebody else has come, or it knows of a higher one: then the
-- record is an old one that was put back.
--
-- KEYS[1] lease  hash  holder, epoch, until_ms, lease_ms, about
-- ARGV[1] holder    string
-- ARGV[2] epoch     int     the highest that the holder knows of, 0 for none
-- ARGV[3] lease_ms  int     0 when it ceases
-- ARGV[4] about     string  "host=... version=... config=..."
-- RETURNS [status, epoch, holder, left_ms]
--         status "held" | "taken" (by another) | "left"; the others are of who has it now, epoch of
--         who had it last; left_ms may be 0
-- @include lib/number
-- @include lib/time

-- bind
local lease, holder, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[3])

-- read
local now = server_ms()
local row = redis.call('HMGET', lease, 'holder', 'epoch', 'until_ms', 'lease_ms')
local epoch, left_ms = whole(row[2]), whole(row[3]) - now
if left_ms > whole(row[4]) then
  left_ms = 0 -- the clock was set back since
end

-- decide
if row[1] and row[1] ~= holder and left_ms > 0 then
  return { 'taken', epoch, row[1], left_ms }
end
if row[1] ~= holder or epoch < tonumber(ARGV[2]) then
  epoch = math.max(epoch + 1, tonumber(ARGV[2]) + 1, math.floor(now / 1000))
end
if lease_ms == 0 then
  if row[1] == holder then
    redis.call('HDEL', lease, 'until_ms')
  end
  return { 'left', whole(row[2]), '', 0 }
end

-- write, first what takes no memory: without a leader nobody tidies up
redis.call('HDEL', lease, 'until_ms')
redis.call('HSET', lease, 'holder', holder, 'epoch', spell(epoch),
  'until_ms', spell(now + lease_ms), 'lease_ms', ARGV[3], 'about', ARGV[4])
return { 'held', epoch, holder, lease_ms }
