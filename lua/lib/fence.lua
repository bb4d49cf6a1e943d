-- fence: what a coordinator writes carries the epoch of its lease, and whatever has seen a newer
-- one refuses it: a leader that was paused overwrites nothing.
-- @include lib/claim
-- @include lib/number

-- Whether a newer leader than this one has been at the model.
local function is_fenced(endpoints, epoch)
  return whole(redis.call('HGET', endpoints, 'fence')) > epoch
end

-- Keeps older ones out from now on. What takes no memory comes first.
local function raise_fence(endpoints, epoch)
  if whole(redis.call('HGET', endpoints, 'fence')) < epoch then
    redis.call('HDEL', endpoints, 'fence')
    redis.call('HSET', endpoints, 'fence', spell(epoch))
    redis.call('PEXPIRE', endpoints, ENDPOINTS_TTL_MS)
  end
end
