#!lua
-- admit: choose an endpoint for one attempt and claim room on it, in one step.
--
-- A caller's pin comes first; else endpoints are drawn by weight and judged one by one: one that
-- may not be used is struck out with its reason and the draw repeated, which gives the distribution
-- of filtering first. Of two such draws the less loaded wins where much prefill waits. Or all are
-- judged and compared by a score (score/). A refusal writes nothing on its own behalf. Repeating a
-- claim that stands answers the same endpoint.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] claims     zset    claim id -> lease deadline in ms
-- KEYS[3] claimed    hash    claim id -> what it holds
-- KEYS[4] reaped     zset    id of an expired claim -> when to forget it, in ms
-- KEYS[5] epoch      string  number of the run-time overrides
-- KEYS[6] pin        string  the caller's pin
-- KEYS[7] hint       hash    location -> what it has cached of the caller's prompts
-- ARGV[1] epoch           int     of the overrides that the candidates follow
-- ARGV[2] candidates      string  CANDIDATES (see lib/ask)
-- ARGV[3] tried           string  "<location> ..." that this request has tried already: the attempt
--                                 is failover then, and the model's budget for that holds. With a
--                                 "~" before them it is not: the request alone was to blame. A "~"
--                                 also stands before those of an attempt that is counted already
-- ARGV[4] order           string  "draw" | "declared" | "pinned" (limits hold, circuit and cooldown
--                                 do not, and there is no probe) | "expected_ttft" (which without
--                                 prefill is a draw) | "reserve" (it alone, and no failover) |
--                                 "routewise"
-- ARGV[5] draws           string  "<whole number> ...", 53 bits of chance each, at most one for
--                                 each candidate and 2 more; when fewer run out: "short"
-- ARGV[6] rules           string  RULES (see lib/ask)
-- ARGV[7] caller          string  names its own tokens in prefill; "" for none
-- ARGV[8] prompt_tokens   int
-- ARGV[9] fingerprint     string  of the conversation, "" for none
-- ARGV[10] output_tokens  int     that the answer may have at the most, 0 when that is not known
-- ARGV[11] offers         string  what each candidate costs and how fast it is, for "routewise"
--                                 (see score/routewise), else ""
-- ARGV[12] claim          string  <replica>.<number>
-- ARGV[13] lease_ms       int
-- RETURNS [status, location, probe, inflight, drawn, retry_after_ms, reasons, pin, tokens,
--          elephant, cached_tokens, anchor, taken, reserve]
--         status "admitted" | "refused" | "short" | "stale" (other overrides hold now)
--         reasons "<location>=<reason> ..." of those passed over; pin "kept" | "made" | ""
--         tokens, elephant: what it is charged for in prefill; cached_tokens, anchor: of the hint
--         there, if it is of this conversation; taken: of the endpoint's limits, to be told when
--         the claim ends; reserve 1 when another was found, and the reserve could be taken, too
-- @include lib/number
-- @include lib/clock
-- @include lib/claim
-- @include lib/reap
-- @include lib/tombstone
-- @include lib/ask
-- @include lib/decide
-- @include lib/limit
-- @include lib/pin
-- @include lib/retry

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local claim, lease_ms = ARGV[12], tonumber(ARGV[13])

-- epoch
local stored = redis.call('MGET', KEYS[5], KEYS[6]) -- whatever is no string is not there
if whole(stored[1]) ~= tonumber(ARGV[1]) then
  return { 'stale', '', 0, 0, 0, 0, '', '', 0, 0, 0, '', '', 0 }
end

-- reap
local seen = redis.call('HMGET', endpoints, 'at_ms', 'retries', 'output_tokens')
local now, stepped = clock_after(seen[1])
reap_due(endpoints, claims, claimed, reaped, now, 4)

-- The answer to a call that is repeated, nil when the claim does not stand. Nothing else is decided
-- by it: almost every call is the first, and asks only where it has been refused, or finds the
-- claim's lease.
local function answer_again()
  local standing = redis.call('HGET', claimed, claim)
  local held = standing and read_holding(standing)
  if held then
    local inflight = whole(redis.call('HGET', endpoints, held.location .. ':inflight'))
    return { 'admitted', held.location, held.probe and 1 or 0, inflight, 0, 0, '', '',
      whole(held.tokens), held.elephant and 1 or 0, 0, '', held.taken or '', 0 }
  end
end

-- decide
local ask = read_ask(ARGV, endpoints, now, replica_of(claim), stored[2], KEYS[7])
ask.usual_output = seen[3]
local found = may_try(ask, seen[2]) and decide(ask) or refuse_all(ask, 'retry_budget')
if found.is_short then
  return answer_again() or { 'short', '', 0, 0, found.drawn, 0, '', '', 0, 0, 0, '', '', 0 }
end
local reserve = found.location and has_reserve(ask, found)
local reasons = reasons_of(ask, found)
if not found.location then
  return answer_again()
    or { 'refused', '', 0, 0, found.drawn, found.soonest_ms, reasons, '', 0, 0, 0, '', '', 0 }
end

-- claim
local deadline_ms = spell(now + lease_ms)
if redis.call('ZADD', claims, 'NX', deadline_ms, claim) == 0 then
  local again = answer_again()
  if again then
    return again
  end
  redis.call('ZADD', claims, deadline_ms, claim) -- its record was lost
end
local at, row, tokens = found.location, found.row, found.tokens or 0
local held = { location = at, lease_ms = ARGV[13], epoch = ARGV[1] ~= '0' and ARGV[1] }
local fields = { at .. ':inflight', spell(row.inflight + 1), 'at_ms', spell(now) }
local function set(name, value)
  fields[#fields + 1] = at .. name
  fields[#fields + 1] = value
end
if tokens > 0 then
  held.tokens = spell(tokens)
  set(':prefill_tokens', spell(row.prefill_tokens + tokens))
end
if tokens > 0 and ask.caller ~= '' then
  held.caller = ask.caller
  set(':own:' .. ask.caller, spell(row.own_tokens + tokens))
end
if found.charges and tokens > 0 then -- the mean charge of the last prompts, some fifty of them
  local usual = found.usual_charge or tokens
  fields[#fields + 1] = 'charge_tokens'
  fields[#fields + 1] = string.format('%.1f', usual + (tokens - usual) / 50)
end
if found.is_elephant then
  held.elephant = 1
  set(':elephants', spell(row.elephants + 1))
end
if row.limits then
  held.taken = take_limits(ask, at, row.limits, set)
end
local tally = count_attempt(ask, seen[2])
if tally then
  fields[#fields + 1] = 'retries'
  fields[#fields + 1] = tally
end
if row.takes_probe then
  held.probe = 1
  set(':circuit', 'half_open')
  set(':probe', claim)
  set(':probe_until_ms', spell(now + ask.cooldown_ms))
end
redis.call('HSET', claimed, claim, write_holding(held))
redis.call('HSET', endpoints, unpack(fields))
remove_tombstone(reaped, claim)
if ask.uses_pin and not found.is_reserve then
  local created_ms = found.pin == 'kept' and ask.pin.created_ms or now
  write_pin(KEYS[6], at, created_ms, now, ask.pin_max_age_ms)
end
count_step(endpoints, stepped)
if found.is_degraded then
  local faults = whole(redis.call('HGET', endpoints, 'prefill_faults'))
  redis.call('HSET', endpoints, 'prefill_faults', faults + 1)
end
-- Of claims that stand longer `renew` keeps the record; the first finds nothing in flight.
if row.inflight == 0 and redis.call('HLEN', claimed) == 1 then
  keep_claims(endpoints, claims, claimed)
end
return { 'admitted', at, row.takes_probe and 1 or 0, row.inflight + 1, found.drawn, 0, reasons,
  ask.uses_pin and found.pin or '', tokens, found.is_elephant and 1 or 0,
  found.cached_tokens or 0, found.anchor or '', held.taken or '', reserve and 1 or 0 }
