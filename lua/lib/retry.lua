-- retry: how much of a model's traffic is failover, which has a budget: a share of its first
-- attempts, with a floor.
--
-- `<half minute> <first attempts> <others> <first attempts in the one before> <others>`, half
-- minutes since 1970.
-- @include lib/number

local HALF_MS = 30000

local function read_retries(text, now)
  local half = math.floor(now / HALF_MS)
  local at, admits, retries, admits_before, retries_before =
    string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if whole(at) == half then
    return { half = half, admits = whole(admits), retries = whole(retries),
      admits_before = whole(admits_before), retries_before = whole(retries_before) }
  elseif whole(at) == half - 1 then
    return { half = half, admits = 0, retries = 0, admits_before = whole(admits),
      retries_before = whole(retries) }
  end
  return { half = half, admits = 0, retries = 0, admits_before = 0, retries_before = 0 }
end

local function write_retries(seen)
  return string.format('%d %d %d %d %d', seen.half, seen.admits, seen.retries,
    seen.admits_before, seen.retries_before)
end

-- How many first attempts count now, and how many others.
local function count_retries(seen)
  return seen.admits + seen.admits_before, seen.retries + seen.retries_before
end

local function allowed_retries(firsts, percent, floor)
  return math.max(floor, math.floor(firsts * percent / 100))
end

local function has_budget(ask)
  return #ask.locations > 1 and ask.retry_percent >= 0
end

-- Whether the attempt is within the budget. First ones are in any case.
local function may_try(ask, text)
  if not ask.is_retry or not has_budget(ask) then
    return true
  end
  local firsts, others = count_retries(read_retries(text, ask.now))
  return others < allowed_retries(firsts, ask.retry_percent, ask.retry_floor)
end

-- The tally with one attempt more, nil where that does not count: it is neither the first nor a
-- failover.
local function count_attempt(ask, text)
  local is_first = next(ask.tried) == nil
  if not has_budget(ask) or not (is_first or ask.is_retry) then
    return nil
  end
  local seen = read_retries(text, ask.now)
  local counted = is_first and 'admits' or 'retries'
  seen[counted] = seen[counted] + 1
  return write_retries(seen)
end
