-- reap: end claims whose lease ran out, because their replica died or lost its way.
-- @include lib/claim
-- @include lib/lease
-- @include lib/tombstone

-- A claim without a holding has nothing to give back and is dropped. One that a newer release
-- wrote is postponed by the lease it names, never waited at.
local function reap_due(endpoints, claims, claimed, reaped, now, limit)
  local ended = 0
  for _, claim in ipairs(find_due(claims, now, limit)) do
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
