-- clock: the time of a model's decisions, which does not run backwards by small steps.
-- @include lib/number
-- @include lib/time

-- After a failover the new server's clock may lag the old one's a little: the last time written
-- to the model then stands until the server has caught up. A larger gap is a real step of the
-- clock, and the server is right.
local CLOCK_SLACK_MS = 5000

-- Returns now in ms, and whether the clock has stepped back too far to be bridged; `at_ms` is what
-- stands in the field of that name.
local function clock_after(at_ms)
  local server = server_ms()
  local seen = whole(at_ms)
  if seen <= server then
    return server, false
  end
  if seen - server < CLOCK_SLACK_MS then
    return seen, false
  end
  return server, true
end

local function model_clock(endpoints)
  return clock_after(redis.call('HGET', endpoints, 'at_ms'))
end

-- Counts a step back where an operator can see it.
local function count_step(endpoints, stepped)
  if stepped then
    local steps = whole(redis.call('HGET', endpoints, 'clock_steps'))
    redis.call('HSET', endpoints, 'clock_steps', steps + 1)
  end
end

-- Writes the time of a decision.
local function write_clock(endpoints, now, stepped)
  redis.call('HSET', endpoints, 'at_ms', spell(now))
  count_step(endpoints, stepped)
end
