-- budget: money that a holder may spend, in billionths of a dollar.
--
-- `start_ms=... duration_ms=... spent=... held=...`: held is reserved by requests under way. It is
-- whole again when its duration has passed since the first of it was taken; duration 0 is never.
-- @include lib/number

-- Reads a budget as it stands now; nonsense, and a start further away than the duration, is a new
-- one.
local function read_budget(text, now)
  local start_ms, duration_ms, spent, held =
    string.match(text or '', '^start_ms=(%d+) duration_ms=(%d+) spent=(%d+) held=(%d+)$')
  local budget = { start_ms = now, duration_ms = whole(duration_ms), spent = 0, held = 0 }
  spent, held = whole(spent), whole(held)
  if not start_ms or spent + held == 0 then
    return budget
  end
  if budget.duration_ms == 0 or math.abs(now - tonumber(start_ms)) < budget.duration_ms then
    budget.start_ms, budget.spent, budget.held = tonumber(start_ms), spent, held
  end
  return budget
end

-- Reads it under the duration that is configured now.
local function open_budget(text, now, duration_ms)
  local with_it = string.gsub(text or '', 'duration_ms=%d+', 'duration_ms=' .. spell(duration_ms))
  local budget = read_budget(with_it, now)
  budget.duration_ms = duration_ms
  return budget
end

local function write_budget(budget)
  return string.format('start_ms=%d duration_ms=%d spent=%d held=%d', budget.start_ms,
    budget.duration_ms, budget.spent, budget.held)
end

-- Ends what a request reserved at some time: it has cost so much. A budget that has become whole
-- since then knows nothing of the reservation, and is charged for what goes beyond it alone.
local function spend(budget, at_ms, reserved, cost, is_spent)
  if at_ms < budget.start_ms then
    budget.spent = budget.spent + math.max(cost - reserved, 0)
  elseif is_spent then
    budget.spent = math.max(budget.spent + cost - reserved, 0)
  else
    budget.spent = budget.spent + cost
    budget.held = math.max(budget.held - reserved, 0)
  end
end
