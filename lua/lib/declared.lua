-- declared: what operators have declared of a provider's keys, and its number, which only rises.
-- @include lib/number
-- @include lib/time

-- Raises the number: from then on a replica that has not read the change is told so.
local function raise_declared_epoch(key)
  local raised = spell(math.max(whole(redis.call('GET', key)) + 1, server_ms()))
  redis.call('SET', key, raised)
  return raised
end
