-- outcome: what a finished attempt says of its endpoint.
-- @include lib/circuit
-- @include lib/conn
-- @include lib/number

local FAILURES = { failure = true, auth = true, connect = true }
local OUTCOMES = { success = true, neutral = true, failure = true, auth = true, connect = true }

local function read_policy(failure_threshold, cooldown_ms, min_availability, ewma_alpha)
  return {
    failure_threshold = tonumber(failure_threshold),
    cooldown_ms = tonumber(cooldown_ms),
    min_availability = tonumber(min_availability),
    alpha = tonumber(ewma_alpha),
  }
end

-- The first proof that the endpoint works: success for the circuit, and for this replica's network.
local function record_success(endpoints, at, replica, policy)
  forget_connect_failures(endpoints, at, replica)
  return count_success(endpoints, at, policy)
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
