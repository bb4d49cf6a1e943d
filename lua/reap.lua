#!lua flags=allow-oom
-- reap: end the expired claims of a model, with or without traffic on it.
--
-- Bounded per call; the caller comes again. Also recalls deadlines that the clock has made void.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- KEYS[4] reaped     zset  id of an expired claim -> when to forget it, in ms
-- ARGV[1] limit  int   at most this many claims are ended, and never more than 1000
-- RETURNS [status, ended]
--         status "done"; ended how many claims were
-- @include lib/clock
-- @include lib/claim
-- @include lib/reap
-- @include lib/tombstone

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = math.min(tonumber(ARGV[1]), 1000)

-- A deadline further away than its claim's own lease is void (the clock was set back since): the
-- claim gets one lease from now, in which a living holder renews it.
local function recall_far(now)
  local ids, deadlines = {}, {}
  local latest = redis.call('ZREVRANGE', claims, 0, limit - 1, 'WITHSCORES')
  for i = 1, #latest, 2 do
    ids[#ids + 1] = latest[i]
    deadlines[#deadlines + 1] = tonumber(latest[i + 1])
  end
  if #ids == 0 then
    return
  end
  for i, text in ipairs(redis.call('HMGET', claimed, unpack(ids))) do
    local latest_ms = now + lease_of(text)
    if deadlines[i] > latest_ms then
      redis.call('ZADD', claims, 'XX', latest_ms, ids[i])
    end
  end
end

-- Forgets those that no settle can ask for any more, and those that a clock set back has made void.
local function forget_tombstones(now)
  for _, range in ipairs({
    { '-inf', string.format('%.0f', now) },
    { string.format('(%.0f', now + TOMBSTONE_MS), '+inf' },
  }) do
    local void = redis.call('ZRANGEBYSCORE', reaped, range[1], range[2], 'LIMIT', 0, limit)
    if #void > 0 then
      redis.call('ZREM', reaped, unpack(void))
    end
  end
end

-- read, write
local now = model_clock(endpoints)
local ended = reap_due(endpoints, claims, claimed, reaped, now, limit)
recall_far(now)
forget_tombstones(now)
return { 'done', ended }
