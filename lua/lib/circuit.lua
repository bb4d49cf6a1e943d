-- circuit: an endpoint's failure state. An absent field is the healthy default.
--
-- availability is an exponentially weighted mean of successes (1) and failures (0) from 1.0 on;
-- it is kept as a decimal of 17 digits, which a double survives unchanged.
-- @include lib/number

local function text_of(number)
  return string.format('%.17g', number)
end

local function availability_of(text)
  return math.max(0, math.min(1, tonumber(text) or 1))
end

-- Judges a row {circuit, opened_at_ms, probe, probe_until_ms}. Returns nil when the endpoint may
-- be used, else the reason and in how many ms that can change; third, whether using it takes the
-- half-open probe. A deadline further away than the cooldown is void.
local function judge_circuit(row, now, cooldown_ms)
  if row.circuit == 'open' then
    local left = whole(row.opened_at_ms) + cooldown_ms - now
    if left > 0 and left <= cooldown_ms then
      return 'circuit_open', left, false
    end
    return nil, 0, true
  end
  if row.circuit == 'half_open' then
    local left = whole(row.probe_until_ms) - now
    if row.probe and left > 0 and left <= cooldown_ms then
      return 'probe_in_flight', left, false
    end
    return nil, 0, true
  end
  return nil, 0, false
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

-- Counts one success, which closes the circuit whatever its state: also one whose request was on
-- its way before the circuit opened. Returns "closed" or "".
local function count_success(endpoints, at, policy)
  local row = redis.call('HMGET', endpoints, at .. ':failures', at .. ':availability',
    at .. ':circuit', at .. ':auth_rejections')
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
