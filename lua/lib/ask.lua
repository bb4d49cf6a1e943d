-- ask: what is decided on, as `admit` and `explain` are told it in their arguments 1 to 19.
--
-- An ask may also hold `given_back`, field -> count, and `ended`, claim -> true: what is to be
-- judged as though these claims had been reaped.
-- @include lib/pin

-- Returns locations and weights of "<location> <weight> ...".
local function read_candidates(text)
  local locations, weights, count = {}, {}, 0
  for location, weight in string.gmatch(text, '([^ ]+) ([^ ]+)') do
    count = count + 1
    locations[count], weights[count] = location, tonumber(weight)
  end
  return locations, weights
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
  local ask = {
    endpoints = endpoints,
    now = now,
    replica = replica,
    tried = read_set(args[3]),
    order = args[4],
    draws = args[5],
    failure_threshold = tonumber(args[6]),
    cooldown_ms = tonumber(args[7]),
    caller = args[8],
    uses_pin = args[9] == '1' and args[4] == 'draw',
    pin_max_age_ms = tonumber(args[10]),
    counts_prefill = args[11] == '1',
    compares = args[4] == 'expected_ttft',
  }
  ask.locations, ask.weights = read_candidates(args[2])
  if ask.uses_pin then
    ask.pin = read_pin(pin, now, ask.pin_max_age_ms)
  end
  if ask.counts_prefill then
    ask.prefill = {
      tokens = tonumber(args[12]),
      fingerprint = args[13],
      hints = args[8] ~= '' and hints,
      intervene_tokens = tonumber(args[14]),
      elephant_tokens = tonumber(args[15]),
      elephant_limit = tonumber(args[16]),
      affinity_ceiling = tonumber(args[17]),
      hint_ttl_ms = tonumber(args[18]),
      usual_rate = tonumber(args[19]),
    }
  end
  return ask
end
