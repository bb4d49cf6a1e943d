-- ask: what is decided on, as `admit` and `explain` are told it in their arguments 1 to 11.
--
-- CANDIDATES are "<location> <weight> ..." in declaration order; the limits of an endpoint that has
-- some follow its weight without a space (see limit). The one whose weight is `-` is the reserve,
-- which is taken when no other may be.
--
-- RULES are those of a configuration, a string that is the same in every call: "<failure_threshold>
-- <cooldown_ms> <affinity> <pin_max_age_ms> <prefill> <intervene_tokens> <elephant_tokens>
-- <elephant_limit> <affinity_ceiling> <hint_ttl_ms> <window_ms> <retry_percent> <retry_floor>
-- <prefill_rate>". affinity and prefill are 1 when they are on, pin_max_age_ms is 0 for no cap,
-- retry_percent -1 for no budget, prefill_rate is in tokens/s of endpoints while none is known.
--
-- An ask may also hold `given_back`, field -> count, and `ended`, claim -> true: what is to be
-- judged as though these claims had been reaped.
-- @include lib/pin

local RULES = '^' .. string.rep('(%S+) ', 13) .. '(%S+)$'

-- Returns locations, weights and limits, of which an endpoint without any has '', and the place of
-- the reserve.
local function read_candidates(text)
  local locations, weights, limits, count, reserve = {}, {}, {}, 0, nil
  for location, weight, limited in string.gmatch(text, '(%S+) ([^ |]+)(%S*)') do
    count = count + 1
    locations[count], weights[count], limits[count] = location, tonumber(weight), limited
    if weight == '-' then
      weights[count], reserve = 1, count
    end
  end
  return locations, weights, limits, reserve
end

local function read_set(text)
  local set = {}
  for word in string.gmatch(text, '[^ ]+') do
    set[word] = true
  end
  return set
end

-- `pin` is what stands under the caller's pin, `hints` the key of what is cached of its prompts.
local function read_ask(args, endpoints, now, replica, pin, hints)
  local failure_threshold, cooldown_ms, affinity, pin_max_age_ms, prefill, intervene_tokens,
    elephant_tokens, elephant_limit, affinity_ceiling, hint_ttl_ms, window_ms, retry_percent,
    retry_floor, prefill_rate = string.match(args[6], RULES)
  local caller, order = args[7], args[4]
  local ask = {
    endpoints = endpoints,
    now = now,
    replica = replica,
    tried = read_set(args[3]),
    is_retry = order ~= 'reserve' and string.find(args[3], '^[^~]') ~= nil,
    order = order,
    draws = args[5],
    failure_threshold = tonumber(failure_threshold),
    cooldown_ms = tonumber(cooldown_ms),
    caller = caller,
    uses_pin = affinity == '1' and caller ~= '' and order == 'draw',
    pin_max_age_ms = tonumber(pin_max_age_ms),
    counts_prefill = prefill == '1',
    compares = order == 'expected_ttft',
    offers = order == 'routewise' and args[11],
    window_ms = tonumber(window_ms),
    input_tokens = tonumber(args[8]),
    output_tokens = tonumber(args[10]),
    retry_percent = tonumber(retry_percent),
    retry_floor = tonumber(retry_floor),
  }
  ask.locations, ask.weights, ask.limits, ask.reserve = read_candidates(args[2])
  if ask.uses_pin then
    ask.pin = read_pin(pin, now, ask.pin_max_age_ms)
  end
  if ask.counts_prefill then
    ask.prefill = {
      tokens = ask.input_tokens,
      fingerprint = args[9],
      hints = caller ~= '' and hints,
      intervene_tokens = tonumber(intervene_tokens),
      elephant_tokens = tonumber(elephant_tokens),
      elephant_limit = tonumber(elephant_limit),
      affinity_ceiling = tonumber(affinity_ceiling),
      hint_ttl_ms = tonumber(hint_ttl_ms),
      usual_rate = tonumber(prefill_rate),
    }
  end
  return ask
end
