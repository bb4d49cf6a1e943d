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

local function put_counts(window, counts)
  local last, sum = 1, 0
  for i = 1, math.min(#counts, PARTS + 1) do
    sum = sum + counts[i]
    if counts[i] > 0 then
      last = i
    end
  end
  local words = {}
  for i = 2, last do
    words[i - 1] = ' ' .. spell(counts[i])
  end
  window.first, window.rest, window.sum = counts[1], table.concat(words), sum
end

-- An empty window: sliding from the current part on, fixed from whenever something is taken.
local function new_window(now, length_ms, is_fixed)
  local window = { length_ms = length_ms, is_fixed = is_fixed, sum = 0 }
  if not is_fixed then
    window.part_ms = part_length(length_ms)
    window.newest, window.first, window.rest = math.floor(now / window.part_ms), 0, ''
  end
  return window
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

-- Reads a window as it stands now, or nil. Within one part nothing but the head need be read.
local function read_window(text, now)
  local length_ms, newest, sum, first, rest =
    string.match(text or '', '^sliding (%d+) (%d+) (%d+) (%d+)([ %d]*)$')
  if not length_ms then
    return text and read_fixed(text, now)
  end
  local window = new_window(now, tonumber(length_ms), false)
  local passed = window.newest - tonumber(newest)
  if math.abs(passed) > PARTS then
    return window
  end
  window.newest, window.sum = window.newest - passed, whole(sum)
  window.first, window.rest = whole(first), rest
  if passed > 0 then
    local counts = {}
    for i = 1, passed do
      counts[i] = 0
    end
    for i, count in ipairs(counts_in(window)) do
      counts[passed + i] = count
    end
    window.newest = window.newest + passed
    put_counts(window, counts)
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
  return string.format('sliding %d %d %s %d%s', window.length_ms, window.newest, sum, window.first,
    window.rest)
end

local function take(window, amount, now)
  window.sum = window.sum + amount
  if window.is_fixed then
    window.start_ms = window.start_ms or now
  else
    window.first = window.first + amount
  end
end

-- Corrects by a difference what was taken at some time. Where that is of the window no more, a rise
-- counts from now on and a fall is dropped; nothing goes below zero.
local function correct(window, at_ms, difference, now)
  if window.is_fixed then
    local is_gone = not window.start_ms or at_ms < window.start_ms
    if difference > 0 then
      take(window, difference, now)
    elseif not is_gone then
      window.sum = math.max(window.sum + difference, 0)
    end
    return
  end
  local age = math.max(window.newest - math.floor(at_ms / window.part_ms), 0)
  if age > PARTS and difference < 0 then
    return
  end
  local counts = counts_in(window)
  local at = age > PARTS and 1 or age + 1
  for i = #counts + 1, at do
    counts[i] = 0
  end
  counts[at] = math.max(counts[at] + difference, 0)
  put_counts(window, counts)
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
  end
  return frees_in_ms(window, window.sum, now)
end
