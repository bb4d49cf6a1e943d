#!lua
-- first_token: record an attempt's first output: its success, the end of its prefill, and how large
-- a prompt its endpoint now has cached.
--
-- Repeating it changes nothing. Unknown or ended claims are not an error: the answer is "gone".
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claimed    hash  claim id -> what it holds
-- KEYS[3] hint       hash  location -> what it has cached of the caller's prompts
-- ARGV[1] claim          string   <replica>.<number>
-- ARGV[2] ewma_alpha     decimal
-- ARGV[3] prompt_tokens  int      0 when there is nothing to remember
-- ARGV[4] fingerprint    string   of the conversation, "" for none
-- ARGV[5] anchor         string   "<length>:<digest>" of the prompt, "" for none
-- ARGV[6] hint_ttl_ms    int
-- RETURNS [status, circuit]
--         status "done" | "again" | "gone"; circuit "closed" when this closed it, else ""
-- @include lib/clock
-- @include lib/claim
-- @include lib/outcome
-- @include lib/prompt

-- bind
local endpoints, claimed, hint = KEYS[1], KEYS[2], KEYS[3]
local claim, ewma_alpha = ARGV[1], tonumber(ARGV[2])
local prompt = read_prompt(ARGV[3], ARGV[4], ARGV[5], ARGV[6])

-- read, decide
local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if not held then
  return { 'gone', '' }
end
if held.first then
  return { 'again', '' }
end
local now = model_clock(endpoints)
local at, counts = held.location, prefill_of(held)

-- write
held.first, held.tokens, held.elephant, held.caller = 1, nil, nil, nil
redis.call('HSET', claimed, claim, write_holding(held))
add_counts(endpoints, counts, -1)
local circuit = record_success(endpoints, at, replica_of(claim), { alpha = ewma_alpha })
confirm_hint(endpoints, hint, at, prompt, now)
return { 'done', circuit }
