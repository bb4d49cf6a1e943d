-- outcome: what a finished attempt says of its endpoint.
--
-- availability is an exponentially weighted mean of successes (1) and failures (0) from 1.0 on;
-- it is kept as a decimal of 17 digits, which a double survives unchanged.
-- @include lib/connect_failure
-- @include lib/number

local FAILURES = { failure = true, auth = true, connect = true }
local OUTCOMES = { success = true, neutral = true, failure = true, auth = true, connect = true }

-- Reads "<failure_threshold> <cooldown_ms> <min_availability> <ewma_alpha> <hint_ttl_ms>".
local function read_policy(rules)
  local failure_threshold, cooldown_ms, min_availability, ewma_alpha, hint_ttl_ms =
    string.match(rules, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  return {
    failure_threshold = tonumber(failure_threshold),
    cooldown_ms = tonumber(cooldown_ms),
    min_availability = tonumber(min_availability),
    alpha = tonumber(ewma_alpha),
    hint_ttl_ms = tonumber(hint_ttl_ms),
  }
end

local function text_of(number)
  return string.format('%.17g', number)
end

local function availability_of(text)
  return math.max(0, math.min(1, tonumber(text) or 1))
end

-- Counts failures, and opens the circuit at the threshold or below the floor: also an open one
-- again, so that a late failure restarts the cooldown. What the endpoint was believed to have
-- cached is void from then on. Returns "opened" or "".
local function count_failures(endpoints, at, now, times, policy)
  if times < 1 then
    return ''
  end
  local row = redis.call('HMGET', endpoints,
    at .. ':failures', at .. ':availability', at .. ':circuit', at .. ':generation')
  local failures = whole(row[1]) + times
  local availability = availability_of(row[2]) * (1 - policy.alpha) ^ times
  redis.call('HSET', endpoints,
    at .. ':failures', failures, at .. ':availability', text_of(availability),
    at .. ':generation', whole(row[4]) + 1)
  if failures < policy.failure_threshold and availability >= policy.min_availability then
    return ''
  end
  redis.call('HSET', endpoints, at .. ':circuit', 'open', at .. ':opened_at_ms', now)
  return row[3] ~= 'open' and 'opened' or ''
end

-- The first proof that the endpoint works: success for this replica's network, and for the circuit,
-- which it closes whatever its state: also a request that was on its way before the circuit opened.
-- Returns "closed" or "".
local function record_success(endpoints, at, replica, policy)
  local row = redis.call('HMGET', endpoints, at .. ':failures', at .. ':availability',
    at .. ':circuit', at .. ':auth_rejections', at .. ':conn')
  if row[5] then
    forget_connect_failures(endpoints, at, replica, row[5])
  end
  if row[2] then
    local availability = (1 - policy.alpha) * availability_of(row[2]) + policy.alpha
    if availability < 1 - 1e-9 then
      redis.call('HSET', endpoints, at .. ':availability', text_of(availability))
    else
      redis.call('HDEL', endpoints, at .. ':availability')
    end
  end
  if row[1] or row[3] or row[4] then
    redis.call('HDEL', endpoints, at .. ':failures', at .. ':circuit', at .. ':auth_rejections',
      at .. ':opened_at_ms', at .. ':probe', at .. ':probe_until_ms')
  end
  return row[3] and 'closed' or ''
end

-- Returns "opened" when the circuit has opened, else "".
local function record_failure(endpoints, at, replica, now, outcome, status, live_replicas, policy)
  if outcome == 'connect' then
    local times = note_connect_failure(endpoints, at, replica, now, live_replicas, policy)
    return count_failures(endpoints, at, now, times, policy)
  end
  if outcome == 'auth' then
    local rejections = whole(redis.call('HGET', endpoints, at .. ':auth_rejections'))
    redis.call('HSET', endpoints, at .. ':auth_rejections', rejections + 1)
  end
  if status > 0 then
    redis.call('HSET', endpoints, at .. ':last_status', status)
  end
  return count_failures(endpoints, at, now, 1, policy)
end
