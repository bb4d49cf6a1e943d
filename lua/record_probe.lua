#!lua
-- record_probe: have a health probe's result count for an endpoint's circuit.
--
-- "failed" is told once as many probes have failed in a row as it takes failures to open a circuit,
-- and opens it; an open one's cooldown begins again. "connect" is the same when no connection was
-- made: like any replica's, such failures count once another witness has met one, too. "passed"
-- closes the circuit, whoever has opened it. Where there is none it says nothing of requests.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- ARGV[1] epoch          int
-- ARGV[2] prober         string  the coordinator's id
-- ARGV[3] location       string
-- ARGV[4] outcome        string  "passed" | "failed" | "connect"
-- ARGV[5] live_replicas  int
-- ARGV[6] rules          string  "<failure_threshold> <cooldown_ms> <min_availability>
--                                <ewma_alpha> <hint_ttl_ms>"
-- RETURNS [status, circuit]
--         status "done" | "fenced"; circuit "opened" or "closed" when this did it, else ""
-- @include lib/claim
-- @include lib/clock
-- @include lib/connect_failure
-- @include lib/fence
-- @include lib/outcome

-- bind
local endpoints, epoch = KEYS[1], tonumber(ARGV[1])
local prober, location, outcome = ARGV[2], ARGV[3], ARGV[4]
local live_replicas, policy = tonumber(ARGV[5]), read_policy(ARGV[6])
if outcome ~= 'passed' and outcome ~= 'failed' and outcome ~= 'connect' then
  return redis.error_reply('BADARG outcome: ' .. outcome)
end

-- read
local now, stepped = model_clock(endpoints)
if is_fenced(endpoints, epoch) then
  return { 'fenced', '' }
end
local circuit = redis.call('HGET', endpoints, location .. ':circuit')

-- write
local turned = ''
if outcome == 'connect' then
  turned =
    record_failure(endpoints, location, prober, now, outcome, 0, live_replicas, policy)
elseif outcome == 'failed' then
  local times = circuit == 'open' and 1 or policy.failure_threshold
  turned = count_failures(endpoints, location, now, times, policy)
elseif circuit then
  turned = record_success(endpoints, location, prober, policy)
else
  local notes = redis.call('HGET', endpoints, location .. ':conn')
  if notes then
    forget_connect_failures(endpoints, location, prober, notes)
  end
  return { 'done', '' }
end
raise_fence(endpoints, epoch)
write_clock(endpoints, now, stepped)
redis.call('PEXPIRE', endpoints, ENDPOINTS_TTL_MS)
return { 'done', turned }
