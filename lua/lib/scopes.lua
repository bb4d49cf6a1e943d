-- scopes: the holders of limits that a request counts against, and what is left of each limit.
--
-- Packed, "<scope> <rpm> <tpm> <parallel> <budget> <duration_ms> ...". A limit is a number, with
-- `f` behind it when its window is fixed and `s` when it is a shadow: what that would refuse is
-- only counted. `-` is no limit.
-- @include lib/budget
-- @include lib/number
-- @include lib/window

local KINDS = { 'rpm', 'tpm', 'parallel', 'budget' }

-- Returns the limits of all scopes in one list, each with the name of its field.
local function read_limits(packed)
  local limits, names = {}, {}
  local pattern = '(%S+) (%S+) (%S+) (%S+) (%S+) (%d+)'
  for scope, rpm, tpm, parallel, budget, duration_ms in string.gmatch(packed, pattern) do
    for i, text in ipairs({ rpm, tpm, parallel, budget }) do
      local most, fixed, shadow = string.match(text, '^(%d+)(f?)(s?)$')
      if most then
        limits[#limits + 1] = { scope = scope, kind = KINDS[i], most = tonumber(most),
          is_fixed = fixed ~= '', is_shadow = shadow ~= '', duration_ms = tonumber(duration_ms) }
        names[#names + 1] = scope .. ':' .. KINDS[i]
      end
    end
  end
  return limits, names
end

-- Puts into each limit what is taken of it, and what stands behind that.
local function look_at_limits(limits, texts, now, window_ms)
  for i, limit in ipairs(limits) do
    if limit.kind == 'parallel' then
      limit.taken = whole(texts[i])
    elseif limit.kind == 'budget' then
      limit.budget = open_budget(texts[i], now, limit.duration_ms)
      limit.taken = limit.budget.spent + limit.budget.held
    else
      limit.window = open_window(texts[i], now, window_ms, limit.is_fixed)
      limit.taken = limit.window.sum
    end
  end
end

-- In how many ms a limit will be whole again, 0 for one that is, or that nobody can tell of.
local function renewed_in_ms(limit, now)
  if limit.window then
    return whole_in_ms(limit.window, now)
  elseif limit.budget and limit.duration_ms > 0 and limit.taken > 0 then
    return limit.budget.start_ms + limit.duration_ms - now
  end
  return 0
end
