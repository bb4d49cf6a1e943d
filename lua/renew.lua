#!lua flags=allow-oom
-- renew: lengthen the leases of claims that are still in use.
--
-- Answers the ids it does not know: their holder re-asserts those that still run. Also those of
-- whose first output it has not heard: until their holder tells it again they count as prefill.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- ARGV[1] ids       string   "<claim> ...", at most 128
-- ARGV[2] firsts    string   "<claim> ...", those of them that have had their first output
-- ARGV[3] lease_ms  int
-- RETURNS [status, unknown, unheard]
--         status "done"; unknown, unheard "<claim> ..."
-- @include lib/clock
-- @include lib/claim

-- bind
local endpoints, claims, claimed = KEYS[1], KEYS[2], KEYS[3]
local lease_ms = tonumber(ARGV[3])

-- read, write: a key's TTL first, since servers before 7 let a script go on once it has written
-- something, also when they are out of memory
keep_claims(endpoints, claims, claimed)
local now = model_clock(endpoints)
local unknown, unheard, texts = {}, {}, {}
for claim in string.gmatch(ARGV[1], '%S+') do
  texts[claim] = redis.call('ZSCORE', claims, claim) and redis.call('HGET', claimed, claim)
  if texts[claim] then
    redis.call('ZADD', claims, 'XX', now + lease_ms, claim)
  else
    unknown[#unknown + 1] = claim
  end
end
for claim in string.gmatch(ARGV[2], '%S+') do
  local held = texts[claim] and read_holding(texts[claim])
  if held and not held.first then
    unheard[#unheard + 1] = claim
  end
end
return { 'done', table.concat(unknown, ' '), table.concat(unheard, ' ') }
