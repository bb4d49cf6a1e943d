#!lua
-- first_token: record an attempt's first output: its success, the end of its prefill, how large a
-- prompt its endpoint now has cached, and how fast that was.
--
-- Repeating it changes nothing. Unknown or ended claims are not an error: the answer is "gone".
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claimed    hash  claim id -> what it holds
-- KEYS[3] hint       hash  location -> what it has cached of the caller's prompts
-- ARGV[1] claim          string   <replica>.<number>
-- ARGV[2] rules          string   as `settle` takes them
-- ARGV[3] prompt_tokens  int      0 when there is nothing to remember
-- ARGV[4] fingerprint    string   of the conversation, "" for none
-- ARGV[5] anchor         string   "<length>:<digest>" of the prompt, "" for none
-- ARGV[6] ttft_ms        int      from sending to the first output; 0 when nothing is to be learned
-- RETURNS [status, circuit]
--         status "done" | "again" | "gone"; circuit "closed" when this closed it, else ""
-- @include lib/clock
-- @include lib/claim
-- @include lib/outcome
-- @include lib/number
-- @include lib/prompt
-- @include lib/rate

-- A prefill weighs as much as it has taken, and one of so long ago a third of the last: what is
-- learned is tokens over time, and one that other work has delayed does not spoil it.
local MEMORY_MS = 10000
-- Smaller prompts say more of the way to an engine than of the engine.
local LEAST_TOKENS = 1000

-- bind
local endpoints, claimed, hint = KEYS[1], KEYS[2], KEYS[3]
local claim, policy, ttft_ms = ARGV[1], read_policy(ARGV[2]), tonumber(ARGV[6])
local prompt = read_prompt(ARGV[3], ARGV[4], ARGV[5], policy.hint_ttl_ms)

-- Learns an endpoint's rate from a prefill that has ended now. It began when it was sent, or when
-- the one before it had ended. Of a prompt that was believed to be cached for the most part nothing
-- is learned: it may not have been.
local function learn_rate(at, tokens, now)
  local row = redis.call('HMGET', endpoints, at .. ':prefill_rate', at .. ':prefilled_at_ms')
  local fields = { at .. ':prefilled_at_ms', spell(now) }
  if tokens >= LEAST_TOKENS and tokens >= prompt.tokens / 2 then
    local idle_ms, rate = now - whole(row[2]), read_rate(row[1])
    local took_ms = math.max(idle_ms < 0 and ttft_ms or math.min(ttft_ms, idle_ms), 1)
    local seen = tokens * 1000 / took_ms
    rate = rate and rate + (seen - rate) * (1 - math.exp(-took_ms / MEMORY_MS)) or seen
    fields[3], fields[4] = at .. ':prefill_rate', string.format('%.1f', rate)
  end
  redis.call('HSET', endpoints, unpack(fields))
end

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
local at, counts, tokens = held.location, prefill_of(held), whole(held.tokens)

-- write
held.first, held.queued, held.tokens, held.elephant, held.caller = 1, nil, nil, nil, nil
redis.call('HSET', claimed, claim, write_holding(held))
add_counts(endpoints, counts, -1)
local circuit = record_success(endpoints, at, replica_of(claim), policy)
confirm_hint(endpoints, hint, at, prompt, now)
if ttft_ms > 0 then
  learn_rate(at, tokens, now)
end
return { 'done', circuit }
