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
-- KEYS[7] outcomes   stream  how attempts have ended
-- ARGV[1] claim              string   <replica>.<number>
-- ARGV[2] location           string   where the claim was granted
-- ARGV[3] outcome            string   "success" | "failure" | "auth" | "connect" | "neutral"
-- ARGV[4] status             int      the upstream's HTTP status, 0 for none
-- ARGV[5] live_replicas      int
-- ARGV[6] rules              string   "<failure_threshold> <cooldown_ms> <min_availability>
--                                     <ewma_alpha> <hint_ttl_ms>"
-- ARGV[7] unpin              int      1 when the caller is to leave the endpoint
-- ARGV[8] prompt_tokens      int      0 when there is nothing to remember
-- ARGV[9] fingerprint        string   of the conversation, "" for none
-- ARGV[10] anchor            string   "<length>:<digest>" of the prompt, "" for none
-- ARGV[11] taken             string   of limits, as `admit` answered
-- ARGV[12] used              string   "<input> <output>" tokens; "unsent" when nothing was sent;
--                                     "" when nobody knows: what was taken stays taken
-- ARGV[13] cooling           string   what that means for the endpoint's cooldown, in words of
--                                     lib/cooling; "" for nothing
-- ARGV[14] noted             string   "<keep> <words>": how it has ended, for the coordinator (see
--                                     lib/outcomes), and how many such to keep; "" for none
-- RETURNS [status, circuit]
--         status "done" | "late" | "gone"; circuit "opened" or "closed" when this did it, else ""
-- @include lib/answer
-- @include lib/clock
-- @include lib/claim
-- @include lib/cooling
-- @include lib/correction
-- @include lib/number
-- @include lib/outcome
-- @include lib/outcomes
-- @include lib/prompt
-- @include lib/tombstone
-- @include lib/window

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local pin, hint = KEYS[5], KEYS[6]
local claim, location, outcome = ARGV[1], ARGV[2], ARGV[3]
local status, live_replicas = tonumber(ARGV[4]), tonumber(ARGV[5])
local policy = read_policy(ARGV[6])
local prompt = read_prompt(ARGV[8], ARGV[9], ARGV[10], policy.hint_ttl_ms)
local used_input, used_output = string.match(ARGV[12], '^(%d+) (%d+)$')
if not OUTCOMES[outcome] then
  return redis.error_reply('BADARG outcome: ' .. outcome)
end

-- What the attempt has taken of its endpoint's limits (see limit) becomes what it has used; all of
-- it comes back when nothing was sent.
local function correct_limits(at, taken, now)
  local kinds, input, output, at_ms = string.match(taken, '^([%l,]*):(%d+):(%d+):(%d+)$')
  if not kinds then
    return
  end
  local more_input = whole(used_input) - whole(input)
  local more_output = whole(used_output) - whole(output)
  local differences = { rpm = ARGV[12] == 'unsent' and -1 or 0, tpm = more_input + more_output,
    itpm = more_input, otpm = more_output }
  for kind in string.gmatch(kinds, '%l+') do
    local difference, name = differences[kind] or 0, at .. ':' .. kind
    local window = difference ~= 0 and read_window(redis.call('HGET', endpoints, name), now)
    if window then
      correct(window, whole(at_ms), difference, now)
      redis.call('HSET', endpoints, name, write_window(window))
    end
  end
  if outcome == 'success' and whole(used_output) > 0 and string.find(kinds, 'tpm', 1, true) then
    learn_output(endpoints, whole(used_output))
  end
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
local taken = held and held.taken or ARGV[11]
if taken ~= '' and ARGV[12] ~= '' then
  correct_limits(held and held.location or location, taken, now)
end
local pinned_to = ARGV[7] == '1' and redis.pcall('GET', pin)
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
if ARGV[13] ~= '' then
  cool(endpoints, location, now, ARGV[13])
end
if ARGV[14] ~= '' then
  local keep, words = string.match(ARGV[14], '^(%d+) (.+)$')
  note_outcome(KEYS[7], words, keep)
end
write_clock(endpoints, now, stepped)
redis.call('PEXPIRE', endpoints, ENDPOINTS_TTL_MS)
return { late and 'late' or 'done', circuit }
