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
-- ARGV[1] epoch               int      of the overrides that the candidates follow
-- ARGV[2] candidates          string   "<location> <weight> ..." in declaration order
-- ARGV[3] tried               string   "<location> ..." that this request has tried already
-- ARGV[4] order               string   "draw" | "declared" | "pinned" (no circuit, no probe)
--                                      | "expected_ttft" (which without prefill is a draw)
-- ARGV[5] draws               string   "<number in [0, 1)> ...", at most one for each candidate and
--                                      2 more; when fewer run out the answer is "short"
-- ARGV[6] failure_threshold   int
-- ARGV[7] cooldown_ms         int
-- ARGV[8] caller              string   names its own tokens in prefill; "" for none
-- ARGV[9] affinity            int      1 when a "draw" follows the caller's pin, and writes it
-- ARGV[10] pin_max_age_ms     int      0 for no cap
-- ARGV[11] prefill            int      1 when prefill is looked at and counted
-- ARGV[12] prompt_tokens      int
-- ARGV[13] fingerprint        string   of the conversation, "" for none
-- ARGV[14] intervene_tokens   int
-- ARGV[15] elephant_tokens    int
-- ARGV[16] elephant_limit     int
-- ARGV[17] affinity_ceiling   int      tokens
-- ARGV[18] hint_ttl_ms        int
-- ARGV[19] prefill_rate       int      tokens/s of endpoints while none is known, where they are
--                                      compared
-- ARGV[20] claim              string   <replica>.<number>
-- ARGV[21] lease_ms           int
-- RETURNS [status, location, probe, inflight, drawn, retry_after_ms, reasons, pin, tokens,
--          elephant, cached_tokens, anchor]
--         status "admitted" | "refused" | "short" | "stale" (other overrides hold now)
--         reasons "<location>=<reason> ..." of those passed over; pin "kept" | "made" | ""
--         tokens, elephant: what it is charged for in prefill; cached_tokens, anchor: of the hint
--         there, if it is of this conversation
-- @include lib/number
-- @include lib/clock
-- @include lib/claim
-- @include lib/reap
-- @include lib/tombstone
-- @include lib/ask
-- @include lib/decide
-- @include lib/pin

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local claim, lease_ms = ARGV[20], tonumber(ARGV[21])

-- epoch
local stored = redis.call('MGET', KEYS[5], KEYS[6]) -- whatever is no string is not there
if whole(stored[1]) ~= tonumber(ARGV[1]) then
  return { 'stale', '', 0, 0, 0, 0, '', '', 0, 0, 0, '' }
end

-- reap
local now, stepped = model_clock(endpoints)
reap_due(endpoints, claims, claimed, reaped, now, 4)

local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if held then
  local inflight = whole(redis.call('HGET', endpoints, held.location .. ':inflight'))
  return { 'admitted', held.location, held.probe and 1 or 0, inflight, 0, 0, '', '',
    whole(held.tokens), held.elephant and 1 or 0, 0, '' }
end

-- decide
local ask = read_ask(ARGV, endpoints, now, replica_of(claim), stored[2], KEYS[7])
local found = decide(ask)
if found.is_short then
  return { 'short', '', 0, 0, found.drawn, 0, '', '', 0, 0, 0, '' }
end
local reasons = reasons_of(ask, found)
if not found.location then
  return { 'refused', '', 0, 0, found.drawn, found.soonest_ms, reasons, '', 0, 0, 0, '' }
end

-- claim
local at, row, tokens = found.location, found.row, found.tokens or 0
held = { location = at, lease_ms = ARGV[21], epoch = ARGV[1] ~= '0' and ARGV[1] }
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
if row.takes_probe then
  held.probe = 1
  set(':circuit', 'half_open')
  set(':probe', claim)
  set(':probe_until_ms', spell(now + ask.cooldown_ms))
end
redis.call('ZADD', claims, spell(now + lease_ms), claim)
redis.call('HSET', claimed, claim, write_holding(held))
redis.call('HSET', endpoints, unpack(fields))
remove_tombstone(reaped, claim)
if ask.uses_pin then
  local created_ms = found.pin == 'kept' and ask.pin.created_ms or now
  write_pin(KEYS[6], at, created_ms, now, ask.pin_max_age_ms)
end
count_step(endpoints, stepped)
if found.is_degraded then
  local faults = whole(redis.call('HGET', endpoints, 'prefill_faults'))
  redis.call('HSET', endpoints, 'prefill_faults', faults + 1)
end
if redis.call('HLEN', claimed) == 1 then -- of claims that stand longer `renew` keeps the record
  keep_claims(endpoints, claims, claimed)
end
return { 'admitted', at, row.takes_probe and 1 or 0, row.inflight + 1, found.drawn, 0, reasons,
  ask.uses_pin and found.pin or '', tokens, found.is_elephant and 1 or 0,
  found.cached_tokens or 0, found.anchor or '' }
