-- reservation: what a request holds of its caller's limits, and how that is undone.
--
-- A holding is text, `name=value` words such as `lease_ms=15000 at_ms=1700000000000 tokens=900
-- nanousd=12000 rpm=key:alice,team:acme tpm=key:alice`: when, how much, and of whose limits. A
-- release that meets a word it does not know leaves the reservation to a newer one.
-- @include lib/budget
-- @include lib/lease
-- @include lib/number
-- @include lib/tombstone

local HOLDING_WORDS =
  { 'lease_ms', 'at_ms', 'tokens', 'nanousd', 'is_spent', 'rpm', 'tpm', 'parallel', 'budget' }
local HOLDING_KNOWN = { lease_ms = true, at_ms = true, tokens = true, nanousd = true,
  is_spent = true, rpm = true, tpm = true, parallel = true, budget = true }

-- 7 and 8 days: reservations outlive the counts that they undo, or these would stay for good.
local LIMITS_TTL_MS = 604800000
local RESERVATIONS_TTL_MS = '691200000'
local TTL_SLACK_MS = 3600000

local function write_reservation(held)
  local words = {}
  for _, name in ipairs(HOLDING_WORDS) do
    if held[name] then
      words[#words + 1] = name .. '=' .. held[name]
    end
  end
  return table.concat(words, ' ')
end

-- Returns the holding as a table, or nil when this release cannot read all of it.
local function read_reservation(text)
  local held = {}
  for name, value in string.gmatch(text or '', '([^%s=]+)=(%S+)') do
    if not HOLDING_KNOWN[name] then
      return nil
    end
    held[name] = value
  end
  held.at = whole(held.at_ms)
  return held.lease_ms and held
end

-- Keeps limits for so long at least, `math.huge` for ever; `left_ms` is what PTTL said before the
-- call's writes. Never shorter than before, since somebody else's budget may need it.
local function keep_limits(limits, left_ms, ttl_ms)
  if left_ms == -1 then
    return
  elseif ttl_ms == math.huge then
    redis.call('PERSIST', limits)
  elseif left_ms < ttl_ms - TTL_SLACK_MS then
    redis.call('PEXPIRE', limits, spell(ttl_ms))
  end
end

-- The fields of a kind of limit that a holding has taken from, and what stands there.
local function fields_of(limits, held, kind)
  local names = {}
  for scope in string.gmatch(held[kind] or '', '[^,]+') do
    names[#names + 1] = scope .. ':' .. kind
  end
  return names, #names > 0 and redis.call('HMGET', limits, unpack(names)) or {}
end

-- Gives back places in parallel. None goes below zero, and zero is an absent field.
local function give_back_places(limits, held)
  local names, texts = fields_of(limits, held, 'parallel')
  for i, name in ipairs(names) do
    local count = whole(texts[i]) - 1
    if count > 0 then
      redis.call('HSET', limits, name, spell(count))
    else
      redis.call('HDEL', limits, name)
    end
  end
end

-- Ends what a reservation holds of budgets: it has cost so much.
local function spend_held(limits, held, cost, now)
  local names, texts = fields_of(limits, held, 'budget')
  for i, name in ipairs(names) do
    local budget = texts[i] and read_budget(texts[i], now)
    if budget then
      spend(budget, held.at, whole(held.nanousd), cost, held.is_spent)
      redis.call('HSET', limits, name, write_budget(budget))
    end
  end
end

-- Ends reservations whose lease ran out, because their replica died or lost its way. Their places
-- come back; what they have taken of windows stays taken and what they hold of budgets is spent,
-- since the request has gone upstream. One that a newer release wrote is postponed by the lease it
-- names, never waited at.
local function reap_reservations(limits, reservations, reserved, lapsed, now, limit)
  local ended = 0
  for _, reservation in ipairs(find_due(reservations, now, limit)) do
    local text = redis.call('HGET', reserved, reservation)
    local held = text and read_reservation(text)
    if text and not held then
      redis.call('ZADD', reservations, 'XX', now + lease_of(text), reservation)
    else
      redis.call('ZREM', reservations, reservation)
      if held then
        redis.call('HDEL', reserved, reservation)
        give_back_places(limits, held)
        spend_held(limits, held, whole(held.nanousd), now)
        bury(lapsed, reservation, false, now)
      end
      ended = ended + 1
    end
  end
  return ended
end
