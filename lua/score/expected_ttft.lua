-- expected_ttft: compares endpoints by when a prompt's first token is to be expected there, with a
-- price on each token that has to be computed:
--
--   score = (backlog + price * uncached) / prefill rate
--   price = 1 + mean backlog / usual charge
--
-- The second term of the price is how many prompts wait at an endpoint, on average: so many wait
-- for a token that is computed although it is cached elsewhere. Without it, load drives
-- conversations away from what is cached of them, which makes more load.
-- @include lib/hint
-- @include lib/number
-- @include lib/rate

-- What is believed to be cached may not be, so a prompt is charged for at least this share: of
-- prompts that only look alike, many at once spread all the same.
local LEAST_UNCACHED = 1 / 4
-- Endpoints whose scores differ by less are as good as each other.
local NEAR = 1.05

-- What a prompt is charged for at an endpoint: all but what the hint says, of this conversation,
-- and what waits there of the same caller, which will be cached by the time.
local function charge_at(ask, index, row, text)
  local prefill, hint = ask.prefill, nil
  if text then
    local generation = redis.call('HGET', ask.endpoints, ask.locations[index] .. ':generation')
    hint = read_hint(text, whole(generation), ask.now, prefill.hint_ttl_ms)
  end
  local tokens = uncached(prefill.tokens, hint_of(hint, prefill.fingerprint)) - row.own_tokens
  return math.max(tokens, math.ceil(prefill.tokens * LEAST_UNCACHED))
end

-- Returns those of the pool that are as good as the best. Notes scores, in seconds, and charges of
-- the whole pool, and what prompts are charged for as a rule (nil while that is not known).
local function nearest(ask, found, pool)
  local prefill, rows, rates = ask.prefill, found.rows, {}
  local hints = prefill.hints and redis.call('HMGET', prefill.hints, unpack(ask.locations)) or {}
  local backlog, total, known = 0, 0, 0
  for _, index in ipairs(pool) do
    backlog = backlog + rows[index].prefill_tokens
    rates[index] = read_rate(rows[index].prefill_rate)
    if rates[index] then
      total, known = total + rates[index], known + 1
    end
  end
  local usual_rate = known > 0 and total / known or prefill.usual_rate
  local usual_charge = read_rate(redis.call('HGET', ask.endpoints, 'charge_tokens'))
  local price = 1 + (usual_charge and backlog / #pool / usual_charge or 0)
  local scores, charges, least = {}, {}, math.huge
  for _, index in ipairs(pool) do
    local row = rows[index]
    charges[index] = charge_at(ask, index, row, hints[index])
    scores[index] = (row.prefill_tokens + price * charges[index]) / (rates[index] or usual_rate)
    least = math.min(least, scores[index])
  end
  found.scores, found.charges, found.usual_charge = scores, charges, usual_charge
  local best = {}
  for _, index in ipairs(pool) do
    if scores[index] <= least * NEAR then
      best[#best + 1] = index
    end
  end
  return best
end
