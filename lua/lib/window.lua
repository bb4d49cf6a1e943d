-- window: how much of a limit has been taken lately.
--
-- Text that describes itself. Sliding: `sliding <length_ms> <newest part> <sum> <taken in that
-- part> <in the one before> ...`. A part is a thirtieth of the length and counts whole while any of
-- it is younger than that, so that no stretch of the length ever holds more than the limit. Fixed:
-- `fixed <length_ms> <start_ms> <sum>`, which starts at the first request. Nonsense is no window.
--
-- A date further away than the length is void. Nearer ones, which a clock set back has left in the
-- future, still count: time then stands still for the window until the clock has caught up.
-- @include lib/number

local PARTS = 30

local function part_length(length_ms)
  return math.ceil(length_ms / PARTS)
end

-- What was taken in each part, the newest first.
local function counts_in(window)
  local counts = {}
  for count in string.gmatch(window.first .. window.rest, '%d+') do
    counts[#counts + 1] = whole(count)
  end
  return counts
end

-- An empty window: sliding from the current part on, fixed from whenever something is taken.
local function new_window(now, length_ms, is_fixed)
  if is_fixed then
    return { length_ms = length_ms, is_fixed = true, start_ms = false, sum = 0 }
  end
  local part_ms = part_length(length_ms)
  return { length_ms = length_ms, is_fixed = false, part_ms = part_ms,
    newest = math.floor(now / part_ms), sum = 0, first = 0, rest = '' }
end

local function read_fixed(text, now)
  local length_ms, start_ms, sum = string.match(text, '^fixed (%d+) (%d+) (%d+)$')
  if not length_ms then
    return nil
  end
  local window = new_window(now, tonumber(length_ms), true)
  local passed_ms = now - tonumber(start_ms)
  if passed_ms < window.length_ms and passed_ms >= -window.length_ms then
    window.start_ms, window.sum = tonumber(start_ms), whole(sum)
  end
  return window
end

-- Moves a window on by some parts, at most all of them: those that are too old by then are dropped.
local function pass(window, passed)
  local parts = ' ' .. spell(window.first) .. window.rest
  local kept, dropped = -- never nothing, for which a match would answer a position
    string.match(parts, '^(' .. string.rep(' %d+', PARTS + 1 - passed) .. ')(.*)$')
  for count in string.gmatch(dropped or '', '%d+') do
    window.sum = math.max(window.sum - whole(count), 0)
  end
  window.rest = string.rep(' 0', passed - 1) .. (kept or parts)
  window.newest, window.first = window.newest + passed, 0
end

-- Reads a window as it stands now, or nil. Of its parts only the newest is looked at, unless time
-- has passed beyond that.
local function read_window(text, now)
  local length_ms, newest, sum, first, rest =
    string.match(text or '', '^sliding (%d+) (%d+) (%d+) (%d+)()')
  if not length_ms then
    return text and read_fixed(text, now)
  end
  length_ms, newest = tonumber(length_ms), tonumber(newest)
  local part_ms = part_length(length_ms)
  local passed = math.floor(now / part_ms) - newest
  if math.abs(passed) > PARTS then
    return new_window(now, length_ms, false)
  end
  local window = { length_ms = length_ms, is_fixed = false, part_ms = part_ms, newest = newest,
    sum = whole(sum), first = whole(first), rest = string.sub(text, rest) }
  if passed > 0 then
    pass(window, passed)
  end
  return window
end

-- Reads a window of this kind; one of another is void.
local function open_window(text, now, length_ms, is_fixed)
  local window = read_window(text, now)
  if window and window.length_ms == length_ms and window.is_fixed == is_fixed then
    return window
  end
  return new_window(now, length_ms, is_fixed)
end

local function write_window(window)
  local sum = spell(window.sum)
  if window.is_fixed then
    return string.format('fixed %d %d %s', window.length_ms, window.start_ms or 0, sum)
  end
  return string.format('sliding %d %d %s %d', window.length_ms, window.newest, sum, window.first)
    .. window.rest
end

local function take(window, amount, now)
  window.sum = window.sum + amount
  if window.is_fixed then
    window.start_ms = window.start_ms or now
  else
    window.first = window.first + amount
  end
end

-- The beginning of a sliding window as it is written while its newest part is the current one.
local function sliding_now(now, length_ms)
  return string.format('sliding %d %d ', length_ms, math.floor(now / part_length(length_ms)))
end

-- A sliding window as it is written: its beginning, its sum, what was taken in the newest part, and
-- where the parts before that stand. While the newest part lasts, no more need be read.
local function read_sliding(text)
  return string.match(text or '', '^(sliding %d+ %d+ )(%d+) (%d+)()')
end

-- In how many ms at least that much of what is taken will count no more.
local function frees_in_ms(window, amount, now)
  if window.is_fixed then
    return (window.start_ms or now) + window.length_ms - now
  end
  local counts = counts_in(window)
  for i = #counts, 1, -1 do
    amount = amount - counts[i]
    if amount <= 0 then
      return (window.newest - i + 2 + PARTS) * window.part_ms - now
    end
  end
  return 0
end

-- In how many ms the limit will be whole again.
local function whole_in_ms(window, now)
  if window.sum == 0 then
    return 0
  elseif not window.is_fixed and window.first > 0 then
    return (window.newest + 1 + PARTS) * window.part_ms - now
  end
  return frees_in_ms(window, window.sum, now)
end
