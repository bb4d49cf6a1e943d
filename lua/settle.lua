#!lua flags=allow-oom
-- settle: end an attempt's claim, give back what it holds, and record how the attempt ended.
-- A failure drops the caller's pin to the endpoint, a first success notes what is cached there.
--
-- Ends a claim once. One that was reaped in the meantime still has its outcome counted, once, and
-- gives nothing back. An unknown or ended claim changes nothing.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- KEYS[4] reaped     zset  id of an expired claim -> when to forget it, in ms
-- KEYS[5] pin        string  the caller's pin
-- KEYS[6] hint       hash  location -> what it has cached of the caller's prompts
-- ARGV[1] claim              string   <replica>.<number>
-- ARGV[2] location           string   where the claim was granted
-- ARGV[3] outcome            string   "success" | "failure" | "auth" | "connect" | "neutral"
-- ARGV[4] status             int      the upstream's HTTP status, 0 for none
-- ARGV[5] live_replicas      int
-- ARGV[6] failure_threshold  int
-- ARGV[7] cooldown_ms        int
-- ARGV[8] min_availability   decimal
-- ARGV[9] ewma_alpha         decimal
-- ARGV[10] unpin             int      1 when the caller is to leave the endpoint
-- ARGV[11] prompt_tokens     int      0 when there is nothing to remember
-- ARGV[12] fingerprint       string   of the conversation, "" for none
-- ARGV[13] anchor            string   "<length>:<digest>" of the prompt, "" for none
-- ARGV[14] hint_ttl_ms       int
-- RETURNS [status, circuit]
--         status "done" | "late" | "gone"; circuit "opened" or "closed" when this did it, else ""
-- @include lib/clock
-- @include lib/claim
-- @include lib/outcome
-- @include lib/prompt
-- @include lib/tombstone

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local pin, hint = KEYS[5], KEYS[6]
local claim, location, outcome = ARGV[1], ARGV[2], ARGV[3]
local status, live_replicas = tonumber(ARGV[4]), tonumber(ARGV[5])
local policy = read_policy(ARGV[6], ARGV[7], ARGV[8], ARGV[9])
local prompt = read_prompt(ARGV[11], ARGV[12], ARGV[13], ARGV[14])
if not OUTCOMES[outcome] then
  return redis.error_reply('BADARG outcome: ' .. outcome)
end

-- read
local now, stepped = model_clock(endpoints)
local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if not held and (standing or redis.call('ZSCORE', claims, claim)) then
  held = { location = location } -- edited or deleted by hand: its holder knows where it was granted
end
local late, counted = false, held and held.first
if not held then
  late, counted = find_tombstone(reaped, claim, now)
  if not late then
    return { 'gone', '' }
  end
end

-- write, freeing first: this must run when the server is out of memory
if late then
  remove_tombstone(reaped, claim)
else
  release(endpoints, claims, claimed, claim, held)
end
local pinned_to = ARGV[10] == '1' and redis.pcall('GET', pin)
if type(pinned_to) == 'string' and string.match(pinned_to, '^location=(%S+)') == location then
  redis.call('DEL', pin) -- another may have been made in the meantime, and stays
end
local replica, circuit = replica_of(claim), ''
if outcome == 'success' and not counted then
  circuit = record_success(endpoints, location, replica, policy)
  confirm_hint(endpoints, hint, location, prompt, now)
elseif FAILURES[outcome] then
  circuit =
    record_failure(endpoints, location, replica, now, outcome, status, live_replicas, policy)
end
write_clock(endpoints, now, stepped)
redis.call('PEXPIRE', endpoints, ENDPOINTS_TTL_MS)
return { late and 'late' or 'done', circuit }
