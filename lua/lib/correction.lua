-- correction: what was taken of a window becomes what has been used, once that is known.
-- @include lib/number
-- @include lib/window

-- Where what was taken at some time stands in a sliding window: what is written before it, it, and
-- what is written behind; nil where it counts no more.
local function find_part(window, at_ms)
  local age = math.max(window.newest - math.floor(at_ms / window.part_ms), 0)
  if age == 0 then
    return '', window.first, window.rest
  elseif age <= PARTS then
    return string.match(window.rest, '^(' .. string.rep(' %d+', age - 1) .. ' )(%d+)(.*)$')
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
  local before, count, behind = find_part(window, at_ms)
  if before then
    local corrected = math.max(whole(count) + difference, 0)
    window.sum = math.max(window.sum + corrected - whole(count), 0)
    if before == '' then
      window.first = corrected
    else
      window.rest = before .. spell(corrected) .. behind
    end
  elseif difference > 0 then
    take(window, difference, now)
  end
end
