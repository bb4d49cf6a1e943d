-- decide: which endpoint an attempt gets. It writes nothing: `admit` claims what it answers, and
-- `explain` tells it.
-- @include lib/hint
-- @include lib/judge
-- @include score/expected_ttft
-- @include score/routewise

-- The row of a candidate that may be used, else false; judged once, and the reason noted.
local function row_of(ask, found, index)
  if found.rows[index] == nil then
    local seen = found.seen and found.seen[index]
    local row, reason, left_ms = judge(ask, index, seen)
    found.rows[index] = row
    if reason then
      found.reasons[index] = reason
      if left_ms > 0 and (found.soonest_ms == 0 or left_ms < found.soonest_ms) then
        found.soonest_ms = left_ms
      end
    end
  end
  return found.rows[index]
end

local function hint_at(ask, index, row)
  local prefill = ask.prefill
  local text = prefill.hints and redis.call('HGET', prefill.hints, ask.locations[index])
  return read_hint(text, row.generation, ask.now, prefill.hint_ttl_ms)
end

-- Whether the endpoint has as many elephants as it may have, and the prompt would be another.
local function is_crowded(ask, index, row)
  local prefill = ask.prefill
  return prefill and row.elephants >= prefill.elephant_limit
    and uncached(prefill.tokens, hint_at(ask, index, row)) >= prefill.elephant_tokens
end

-- The first place at which the running sum of the pool's weights, or shares where it is a mixture,
-- reaches u times their total; rounding and all-zero weights fall to the last one. Returns nil when
-- the numbers have run out.
local function next_place(ask, found, pool)
  if ask.order == 'declared' or ask.order == 'pinned' then
    return 1
  end
  local number = found.next_number()
  if not number then
    found.is_short = true
    return nil
  end
  found.drawn = found.drawn + 1
  local weights, total = found.shares or ask.weights, 0
  for _, index in ipairs(pool) do
    total = total + weights[index]
  end
  local threshold, sum = tonumber(number) / 2 ^ 53 * total, 0
  if total > 0 then
    for place, index in ipairs(pool) do
      sum = sum + weights[index]
      if threshold <= sum then
        return place
      end
    end
  end
  return #pool
end

-- Draws from the pool until an endpoint may be used. Those that may not are taken out; with
-- `crowded` also those that are, which are put there.
local function draw(ask, found, pool, crowded)
  while #pool > 0 do
    local place = next_place(ask, found, pool)
    if not place then
      return nil
    end
    local index = pool[place]
    local row = row_of(ask, found, index)
    if row and not (crowded and is_crowded(ask, index, row)) then
      return index
    end
    if row then
      crowded[#crowded + 1] = index
      found.reasons[index] = 'elephant_limit'
    end
    table.remove(pool, place)
  end
  return nil
end

-- The lighter of two draws. The second could change nothing unless the first has much prefill
-- waiting, and is spared otherwise.
local function draw_lighter(ask, found, pool, crowded)
  local first = draw(ask, found, pool, crowded)
  local backlog = first and found.rows[first].prefill_tokens
  if not first or not ask.prefill or #pool == 1 or backlog < ask.prefill.intervene_tokens then
    return first
  end
  local second = draw(ask, found, pool, crowded)
  return second and found.rows[second].prefill_tokens < backlog and second or first
end

-- The place of the endpoint that the caller stays on, or nil. One where others have more prefill
-- waiting than the ceiling is left, and stays so should all be decided again without prefill.
local function follow_pin(ask, found)
  if not ask.pin or ask.left then
    return nil
  end
  for index, location in ipairs(ask.locations) do
    local is_pinned = location == ask.pin.location and index ~= ask.reserve
    local row = is_pinned and row_of(ask, found, index)
    if row then
      local prefill = ask.prefill
      if not prefill or row.prefill_tokens - row.own_tokens <= prefill.affinity_ceiling then
        return index
      end
      ask.left = index
    end
  end
  return nil
end

-- The answer: an endpoint, and what its claim is charged for in prefill.
local function accept(ask, found, index, pin)
  local prefill, row = ask.prefill, found.rows[index]
  found.location, found.row, found.pin = ask.locations[index], row, pin
  found.reasons[index] = nil
  if prefill and prefill.tokens > 0 then
    local hint = hint_at(ask, index, row)
    local own = hint_of(hint, prefill.fingerprint)
    found.tokens = found.charges and found.charges[index] or uncached(prefill.tokens, hint)
    found.is_elephant = uncached(prefill.tokens, own) >= prefill.elephant_tokens
    found.cached_tokens, found.anchor = own and own.tokens, own and own.anchor
  end
  return found
end

-- All endpoints are judged and compared. Weights choose among those that are as good as the best,
-- or shares among those that make the best mixture.
local function choose_compared(ask, found)
  local fit, offers = {}, ask.offers and read_offers(ask.offers)
  found.seen = look_at_all(ask)
  for index = 1, #ask.locations do
    local reason = offers and offers[index].reason
    if reason then
      found.rows[index], found.reasons[index] = false, reason
    elseif row_of(ask, found, index) then
      fit[#fit + 1] = index
    end
  end
  local best = fit[1] and (offers and mix(ask, offers, found, fit) or nearest(ask, found, fit))
  local index = best and draw(ask, found, best)
  if not index then
    return found
  end
  local seen = found.rows[index]
  found.rows[index] = look_at(ask, ask.locations[index])
  found.rows[index].takes_probe, found.rows[index].limits = seen.takes_probe, seen.limits
  return accept(ask, found, index, '')
end

-- One run over the candidates: each is judged when it is first looked at.
--
-- Endpoints that an elephant had better leave alone, and the one that a pin has just left, come
-- only after all others: restrictions that never make a request fail.
local function choose(ask)
  local found = {
    rows = {},
    reasons = {},
    soonest_ms = 0,
    drawn = 0,
    next_number = string.gmatch(ask.draws, '[^ ]+'),
  }
  if ask.offers or ask.compares and ask.prefill then
    return choose_compared(ask, found)
  end
  local kept = follow_pin(ask, found)
  if kept then
    return accept(ask, found, kept, 'kept')
  end
  local others, crowded = {}, {}
  for index = 1, ask.order == 'reserve' and 0 or #ask.locations do
    if index ~= ask.left and index ~= ask.reserve then
      others[#others + 1] = index
    end
  end
  if ask.left then
    found.reasons[ask.left] = 'over_affinity_ceiling'
  end
  local index = draw_lighter(ask, found, others, ask.order == 'draw' and crowded)
    or draw_lighter(ask, found, crowded) or draw_lighter(ask, found, { ask.left })
  if not index and draw(ask, found, { ask.reserve }) then
    found.is_reserve = true
    return accept(ask, found, ask.reserve, '')
  end
  return index and accept(ask, found, index, 'made') or found
end

-- Whether the reserve could be taken, too, when another endpoint has been found.
local function has_reserve(ask, found)
  return ask.reserve and not found.is_reserve and row_of(ask, found, ask.reserve) and true or false
end

-- A fault in what looks at prefill (a hint that is no hash any more, say) or mixes must not cost a
-- request: the draw is then by weight alone, and the fault is counted where operators see it.
local function decide(ask)
  if not ask.prefill and not ask.offers then
    return choose(ask)
  end
  local is_sound, found = pcall(choose, ask)
  if is_sound then
    return found
  end
  local prefill = ask.prefill
  ask.prefill, ask.offers = nil, nil
  found = choose(ask)
  found.is_degraded = true
  if prefill then
    found.tokens, found.is_elephant = prefill.tokens, prefill.tokens >= prefill.elephant_tokens
  end
  return found
end

-- What is found when nothing may be tried, whatever the endpoints.
local function refuse_all(ask, reason)
  local found = { rows = {}, reasons = {}, soonest_ms = 0, drawn = 0 }
  for index, location in ipairs(ask.locations) do
    found.reasons[index] = ask.tried[location] and 'already_attempted' or reason
  end
  return found
end

-- "<location>=<reason> ..." of the endpoints that were passed over.
local function reasons_of(ask, found)
  if not next(found.reasons) then
    return ''
  end
  local words = {}
  for index, location in ipairs(ask.locations) do
    local reason = found.reasons[index]
    words[#words + 1] = reason and location .. '=' .. reason
  end
  return table.concat(words, ' ')
end
