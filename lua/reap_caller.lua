#!lua flags=allow-oom
-- reap_caller: end the expired reservations under one tag, with or without traffic on it.
--
-- Bounded per call; the caller comes again. Also recalls deadlines that the clock has made void.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- KEYS[4] lapsed        zset  id of an expired reservation -> when to forget it, in ms
-- ARGV[1] limit  int   at most this many are ended, and never more than 1000
-- RETURNS [status, ended]
--         status "done"; ended how many were
-- @include lib/clock
-- @include lib/number
-- @include lib/reservation
-- @include lib/tombstone

-- bind
local limits, reservations, reserved, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = math.min(tonumber(ARGV[1]), 1000)

-- A deadline further away than its own lease is void (the clock was set back since): it gets one
-- lease from now, in which a living holder renews it.
local function recall_far(now)
  local latest = redis.call('ZREVRANGE', reservations, 0, limit - 1, 'WITHSCORES')
  for i = 1, #latest, 2 do
    local latest_ms = now + lease_named_in(redis.call('HGET', reserved, latest[i]))
    if tonumber(latest[i + 1]) > latest_ms then
      redis.call('ZADD', reservations, 'XX', spell(latest_ms), latest[i])
    end
  end
end

-- Forgets those that no settlement can ask for any more, and those that the clock has made void.
local function forget_lapsed(now)
  local too_far = '(' .. spell(now + TOMBSTONE_MS)
  for _, range in ipairs({ { '-inf', spell(now) }, { too_far, '+inf' } }) do
    local void = redis.call('ZRANGEBYSCORE', lapsed, range[1], range[2], 'LIMIT', 0, limit)
    if #void > 0 then
      redis.call('ZREM', lapsed, unpack(void))
    end
  end
end

-- read, write
local now = model_clock(limits)
local ended = reap_reservations(limits, reservations, reserved, lapsed, now, limit)
recall_far(now)
forget_lapsed(now)
return { 'done', ended }
