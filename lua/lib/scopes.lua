-- scopes: the holders of limits that a request counts against, and how much of each is left.
--
-- Packed, "<scope> <rpm> <tpm> <parallel> <budget> <duration_ms> ...". A limit is a number, with `f`
-- behind it for a fixed window and `s` for shadow: what that would refuse is only counted. `-` is
-- no limit.
-- @include lib/budget
-- @include lib/number
-- @include lib/window

local KINDS = { 'rpm', 'tpm', 'parallel', 'budget' }

-- Returns the limits of all scopes in one list.
local function read_limits(packed)
  local limits = {}
  for scope, rpm, tpm, parallel, budget, duration_ms in
    string.gmatch(packed, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)') do
    for i, text in ipairs({ rpm, tpm, parallel, budget }) do
      local most, fixed, shadow = string.match(text, '^(%d+)(f?)(s?)$')
      if most then
        limits[#limits + 1] = {
          scope = scope,
          kind = KINDS[i],
          most = tonumber(most),
          is_fixed = fixed == 'f',
          is_shadow = shadow == 's',
          duration_ms = tonumber(duration_ms),
        }
      end
    end
  end
  return limits
end

-- Reads what is taken of each limit.
local function look_at_limits(limits, key, budgets_key, now, window_ms)
  local names, holders = {}, {}
  for i, limit in ipairs(limits) do
    names[i] = limit.scope .. ':' .. limit.kind
    if limit.kind == 'budget' then
      holders[#holders + 1] = limit.scope
    end
  end
  local texts = #names > 0 and redis.call('HMGET', key, unpack(names))
  local budgets = #holders > 0 and redis.call('HMGET', budgets_key, unpack(holders))
  local nth = 0
  for i, limit in ipairs(limits) do
    if limit.kind == 'budget' then
      nth = nth + 1
      limit.budget = open_budget(budgets[nth], now, limit.duration_ms)
      limit.taken = limit.budget.spent + limit.budget.held
    elseif limit.kind == 'parallel' then
      limit.taken = whole(texts[i])
    else
      limit.window = open_window(texts[i], now, window_ms, limit.is_fixed)
      limit.taken = limit.window.sum
    end
  end
end

-- In how many ms a limit that has no room for so much will have it; 0 when waiting does not help.
local function room_in_ms(limit, amount, now)
  ...
end
