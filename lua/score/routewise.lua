-- routewise: the mixture of endpoints that comes to its first token soonest, on average, for what
-- it may cost:
--
--   minimise    sum of share * latency
--   subject to  sum of share * cost <= cheapest + alpha * (dearest - cheapest)
--
-- No mixture needs more than two: neighbours on the lower hull of cost and latency, one on either
-- side of the budget. Or one, where the fastest is within it.
--
-- What an endpoint has cached of the prompt may cost less.
-- @include lib/hint
-- @include lib/number

-- Endpoints as fast as each other are told apart by their cost, the dearest of all by so many ms.
local COST_MS = 1e-3
-- Smaller shares are rounding.
local LEAST_SHARE = 1e-9
-- Less than that is not billed as cached, as a rule.
local LEAST_CACHED = 1024

-- Reads "<alpha> <offer> ...", an offer for each candidate: "<cost>,<latency_ms>,<discount>", the
-- last for each token that it has cached; or the reason why it makes none.
local function read_offers(text)
  local next_word = string.gmatch(text, '[^ ]+')
  local offers = { alpha = tonumber(next_word()) }
  for word in next_word do
    local cost, latency_ms, discount = string.match(word, '^([^,]+),([^,]+),([^,]+)$')
    offers[#offers + 1] = not cost and { reason = word }
      or { cost = tonumber(cost), latency_ms = tonumber(latency_ms), discount = tonumber(discount) }
  end
  return offers
end

-- How much of the prompt an endpoint is believed to have cached, of this very conversation.
local function cached_at(ask, location)
  local prefill = ask.prefill
  local text = prefill and prefill.fingerprint ~= '' and prefill.hints
    and redis.call('HGET', prefill.hints, location)
  if not text then
    return 0
  end
  local generation = whole(redis.call('HGET', ask.endpoints, location .. ':generation'))
  local hint = hint_of(read_hint(text, generation, ask.now, prefill.hint_ttl_ms),
    prefill.fingerprint)
  local tokens = hint and math.min(hint.tokens, prefill.tokens) or 0
  return tokens >= LEAST_CACHED and tokens or 0
end

-- What each of the pool counts for, the cheapest first: its cost, and its latency by which nothing
-- is as good as anything else that is cheaper.
local function by_cost(offers, pool)
  local least, most = math.huge, -math.huge
  for _, index in ipairs(pool) do
    least = math.min(least, offers[index].cost)
    most = math.max(most, offers[index].cost)
  end
  local points = {}
  for place, index in ipairs(pool) do
    local cost, latency_ms = offers[index].cost, offers[index].latency_ms
    if most > least then
      latency_ms = latency_ms + COST_MS * (cost - least) / (most - least)
    end
    points[place] = { index = index, cost = cost, latency_ms = latency_ms }
  end
  table.sort(points, function(one, other)
    if one.cost ~= other.cost then
      return one.cost < other.cost
    elseif one.latency_ms ~= other.latency_ms then
      return one.latency_ms < other.latency_ms
    end
    return one.index < other.index
  end)
  return points, least + offers.alpha * (most - least)
end

-- Those at which the hull turns, from the cheapest to the fastest.
local function lower_hull(points)
  local hull = {}
  for _, point in ipairs(points) do
    if #hull == 0 or point.latency_ms < hull[#hull].latency_ms then
      while #hull > 1 do
        local before, last = hull[#hull - 1], hull[#hull]
        local is_below = (last.latency_ms - before.latency_ms) * (point.cost - before.cost)
          <= (point.latency_ms - before.latency_ms) * (last.cost - before.cost)
        if is_below then
          break
        end
        hull[#hull] = nil
      end
      hull[#hull + 1] = point
    end
  end
  return hull
end

-- Returns those of the pool that have a share of the mixture, in its order. Notes shares and costs,
-- by index, and as scores the latencies of the whole pool, in seconds.
local function mix(ask, offers, found, pool)
  for _, index in ipairs(pool) do
    local offer = offers[index]
    if offer.discount > 0 then
      offer.cost = math.max(offer.cost - offer.discount * cached_at(ask, ask.locations[index]), 0)
    end
  end
  local points, budget = by_cost(offers, pool)
  local hull, last = lower_hull(points), 1
  while hull[last + 1] and hull[last + 1].cost <= budget do
    last = last + 1
  end
  local cheaper, dearer = hull[last], hull[last + 1]
  local share = dearer and (budget - cheaper.cost) / (dearer.cost - cheaper.cost) or 0
  if share > 1 - LEAST_SHARE then
    cheaper, share = dearer, 0
  end
  found.shares, found.scores, found.costs = { [cheaper.index] = 1 - share }, {}, {}
  if share > LEAST_SHARE then
    found.shares[dearer.index] = share
  end
  local mixed = {}
  for _, index in ipairs(pool) do
    found.scores[index] = offers[index].latency_ms / 1000
    found.costs[index] = offers[index].cost
    if found.shares[index] then
      mixed[#mixed + 1] = index
    end
  end
  return mixed
end
