-- cooling: what an attempt's end counts for, and whether it pauses its endpoint.
--
-- It comes as words, `name=value`, that a replica makes of that end:
--   tally=succeeded | failed  it counts among the attempts of the last minute
--   length_ms=... reason=...  the endpoint pauses, if what else is said holds:
--   mostly=<least>            most attempts of that minute have failed, of so many or more
--   wholly=<least>            all have, and so many or more
--   count=<name> allowed=<n> within_ms=...
--                             in that time more than n have failed that are counted by this name
-- @include lib/cooldown
-- @include lib/number
-- @include lib/window

local TALLIED_MS = 60000

local function read_cooling(text)
  local words = {}
  for name, value in string.gmatch(text, '([%l_]+)=(%S+)') do
    words[name] = value
  end
  return words
end

-- Counts one more. Returns how many there have been in that time.
local function count_one(endpoints, name, now, length_ms)
  local window = open_window(redis.call('HGET', endpoints, name), now, length_ms, false)
  take(window, 1, now)
  redis.call('HSET', endpoints, name, write_window(window))
  return window.sum
end

-- Whether the attempts of the last minute, of which so many have failed, are a reason to pause.
local function fails_too_often(endpoints, at, now, failed, words)
  local text = redis.call('HGET', endpoints, at .. ':succeeded')
  local succeeded = open_window(text, now, TALLIED_MS, false).sum
  if words.wholly then
    return succeeded == 0 and failed >= whole(words.wholly)
  end
  return failed > succeeded and failed + succeeded >= whole(words.mostly)
end

-- Of two pauses the one that ends later stands.
local function pause(endpoints, at, now, length_ms, reason)
  local name = at .. ':cooldown'
  if length_ms > cooldown_left(redis.call('HGET', endpoints, name), now) then
    redis.call('HSET', endpoints, name, string.format('until_ms=%d length_ms=%d reason=%s',
      now + length_ms, length_ms, reason))
  end
end

local function cool(endpoints, at, now, text)
  local words, failed = read_cooling(text), 0
  if words.tally == 'succeeded' then
    count_one(endpoints, at .. ':succeeded', now, TALLIED_MS)
  elseif words.tally == 'failed' then
    failed = count_one(endpoints, at .. ':failed', now, TALLIED_MS)
  end
  local pauses = words.length_ms
  if words.count then
    local name = string.format('%s:fails_%s', at, words.count)
    pauses = count_one(endpoints, name, now, whole(words.within_ms)) > whole(words.allowed)
  elseif words.mostly or words.wholly then
    pauses = fails_too_often(endpoints, at, now, failed, words)
  end
  if pauses then
    pause(endpoints, at, now, whole(words.length_ms), words.reason)
  end
end
