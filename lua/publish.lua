#!lua
-- publish: put down what the coordinator has found out, for all to read.
--
-- KEYS[1] lease      hash  holder, epoch, until_ms, lease_ms, about
-- KEYS[2] published  hash  name -> "epoch=... at_ms=... <value>"
-- ARGV[1] epoch  int
-- ARGV[2] what   string  under which name
-- ARGV[3] value  string  words; "" takes it back
-- RETURNS [status, at_ms]
--         status "done" | "fenced"; at_ms when it was put down
-- @include lib/clock
-- @include lib/number

-- bind
local lease, published, epoch, what, value = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local PUBLISHED_TTL_MS = '604800000' -- 7 days

-- read
local before = redis.call('HGET', published, what) or ''
local its_epoch, its_at_ms = string.match(before, '^epoch=(%d+) at_ms=(%d+)')
local now = clock_after(its_at_ms)
if math.max(whole(redis.call('HGET', lease, 'epoch')), whole(its_epoch)) > epoch then
  return { 'fenced', 0 }
end

-- write
if value == '' then
  redis.call('HDEL', published, what)
else
  redis.call('HSET', published, what, string.format('epoch=%d at_ms=%d %s', epoch, now, value))
  redis.call('PEXPIRE', published, PUBLISHED_TTL_MS)
end
return { 'done', now }
