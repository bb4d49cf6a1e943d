-- lease: until when something is held. A sorted set has ids and their deadlines, and a hash beside
-- it what each holds, which names its lease as `lease_ms=...`.
-- @include lib/number

local DEFAULT_LEASE_MS = 15000

-- The lease that a holding names, whoever wrote it.
local function lease_of(text)
  local lease_ms = whole(string.match(text or '', 'lease_ms=(%d+)'))
  return lease_ms > 0 and lease_ms or DEFAULT_LEASE_MS
end

local function find_due(leases, now, limit)
  return redis.call('ZRANGEBYSCORE', leases, '-inf', spell(now), 'LIMIT', '0', spell(limit))
end

-- A deadline further away than its own lease is void (the clock was set back since): it becomes one
-- lease from now, in which a living holder renews it.
local function recall_far(leases, holdings, now, limit)
  local ids, deadlines = {}, {}
  local latest = redis.call('ZREVRANGE', leases, 0, limit - 1, 'WITHSCORES')
  for i = 1, #latest, 2 do
    ids[#ids + 1] = latest[i]
    deadlines[#deadlines + 1] = tonumber(latest[i + 1])
  end
  if #ids == 0 then
    return
  end
  for i, text in ipairs(redis.call('HMGET', holdings, unpack(ids))) do
    local latest_ms = now + lease_of(text)
    if deadlines[i] > latest_ms then
      redis.call('ZADD', leases, 'XX', spell(latest_ms), ids[i])
    end
  end
end
