-- standing: how a model's endpoints stand by now, as operators are told it. A window, a pause and
-- the tally of attempts are texts of when they were written last.
--
-- `seen` is what stands in the endpoints hash, by name. All answers are rows of words.
-- @include lib/cooldown
-- @include lib/limit
-- @include lib/number
-- @include lib/retry
-- @include lib/window

-- What HGETALL has answered, by name.
local function by_name(fields)
  local seen = {}
  for i = 1, #fields, 2 do
    seen[fields[i]] = fields[i + 1]
  end
  return seen
end

-- "<location> <kind> <taken> <reset_ms> <would_refuse>" of each limit of "<location>|<limits> ..."
-- (see limit). reset_ms is 0 when the limit is whole, or when that cannot be told.
local function limits_now(seen, limited, now, window_ms)
  local rows = {}
  for location, packed in string.gmatch(limited, '([^ |]+)(%S+)') do
    for _, limit in ipairs(read_endpoint_limits(packed)) do
      local taken, reset_ms = whole(seen[location .. ':inflight']), 0
      if limit.kind ~= 'parallel' then
        local text = seen[string.format('%s:%s', location, limit.kind)]
        local window = open_window(text, now, window_ms, limit.is_fixed)
        taken, reset_ms = window.sum, whole_in_ms(window, now)
      end
      local would_refuse = seen[string.format('%s:would_refuse_%s', location, limit.kind)]
      rows[#rows + 1] = string.format('%s %s %d %d %d', location, limit.kind, taken, reset_ms,
        whole(would_refuse))
    end
  end
  return rows
end

-- "<location> <left_ms> <reason>" of each pause that lasts.
local function cooldowns_now(seen, now)
  local rows = {}
  for name, text in pairs(seen) do
    local location = string.match(name, '^(%S+):cooldown$')
    local left_ms, reason = cooldown_left(location and text, now)
    if left_ms > 0 then
      rows[#rows + 1] = string.format('%s %d %s', location, left_ms, reason)
    end
  end
  return rows
end

-- "<first attempts> <others> <others that are allowed>", '' where there is no budget.
local function retries_now(text, now, percent, floor)
  if percent < 0 then
    return ''
  end
  local firsts, others = count_retries(read_retries(text, now))
  return string.format('%d %d %d', firsts, others, allowed_retries(firsts, percent, floor))
end
