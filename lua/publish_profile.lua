#!lua
-- publish_profile: put down what the coordinator has learned of a model, for all replicas to read,
-- and take the outcomes that it was learned from for read.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] profile    string  "epoch=... at_ms=... <JSON>"
-- KEYS[3] outcomes   stream  how attempts have ended
-- ARGV[1] epoch  int
-- ARGV[2] value  string  JSON
-- ARGV[3] read   string  "<id> ..." of the outcomes that are in it for the first time
-- RETURNS [status, at_ms]
--         status "done" | "fenced"; at_ms when it was put down
-- @include lib/clock
-- @include lib/fence
-- @include lib/number
-- @include lib/outcomes

-- bind
local endpoints, profile, outcomes, epoch = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])
local PROFILE_TTL_MS = '604800000' -- 7 days

-- read
local its_epoch, its_at_ms =
  string.match(redis.call('GET', profile) or '', '^epoch=(%d+) at_ms=(%d+)')
local now = clock_after(its_at_ms)
if is_fenced(endpoints, epoch) or whole(its_epoch) > epoch then
  return { 'fenced', 0 }
end

-- write
local text = string.format('epoch=%d at_ms=%d %s', epoch, now, ARGV[2])
redis.call('SET', profile, text, 'PX', PROFILE_TTL_MS)
for id in string.gmatch(ARGV[3], '%S+') do
  redis.call('XACK', outcomes, READERS, id)
end
return { 'done', now }
