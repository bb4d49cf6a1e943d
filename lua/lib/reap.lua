-- reap: end claims whose lease ran out, because their replica died or lost its way.
-- @include lib/claim
-- @include lib/tombstone

-- A claim without a holding has nothing to give back and is dropped. One that a newer release
-- wrote is postponed by the lease it names, never waited at.
local function reap_due(endpoints, claims, claimed, reaped, now, limit)
  local ended = 0
  local due = redis.call('ZRANGEBYSCORE', claims, '-inf', now, 'LIMIT', 0, limit)
  for _, claim in ipairs(due) do
    local text = redis.call('HGET', claimed, claim)
    local held = text and read_holding(text)
    if text and not held then
      redis.call('ZADD', claims, 'XX', now + lease_of(text), claim)
    else
      if held then
        release(endpoints, claims, claimed, claim, held)
        bury(reaped, claim, held.first, now)
      else
        redis.call('ZREM', claims, claim)
      end
      ended = ended + 1
    end
  end
  return ended
end

-- What the next `reap_due` of that many will give back, without doing it. Returns field -> count, and
-- claim -> true of those that it will end.
local function due_back(claims, claimed, now, limit)
  local back, ended = {}, {}
  for _, claim in ipairs(redis.call('ZRANGEBYSCORE', claims, '-inf', now, 'LIMIT', 0, limit)) do
    local text = redis.call('HGET', claimed, claim)
    local held = text and read_holding(text)
    if held then
      ended[claim] = true
      for name, count in pairs(counts_of(held)) do
        back[name] = (back[name] or 0) + count
      end
    end
  end
  return back, ended
end

-- A deadline further away than its claim's own lease is void (the clock was set back since): the
-- claim gets one lease from now, in which a living holder renews it.
local function recall_far(claims, claimed, now, limit)
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
