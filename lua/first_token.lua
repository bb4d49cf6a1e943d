#!lua
-- first_token: record an attempt's first output, which is its success.
--
-- Repeating it changes nothing. Unknown or ended claims are not an error: the answer is "gone".
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claimed    hash  claim id -> what it holds
-- ARGV[1] claim       string   <replica>.<number>
-- ARGV[2] ewma_alpha  decimal
-- RETURNS [status, circuit]
--         status "done" | "again" | "gone"; circuit "closed" when this closed it, else ""
-- @include lib/claim
-- @include lib/outcome

-- bind
local endpoints, claimed = KEYS[1], KEYS[2]
local claim = ARGV[1]
local policy = { alpha = tonumber(ARGV[2]) }

-- read, decide
local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if not held then
  return { 'gone', '' }
end
if held.first then
  return { 'again', '' }
end

-- write
held.first = 1
redis.call('HSET', claimed, claim, write_holding(held))
return { 'done', record_success(endpoints, held.location, replica_of(claim), policy) }
