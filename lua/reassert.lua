#!lua
-- reassert: put back a claim whose record was lost while its attempt still runs.
--
-- Never refused: the request is on its way, and counting it is nearer to the truth than not. A
-- probe is not put back, since its circuit was lost with it. Repeating it changes nothing. Where
-- half of the record is left, what it holds is still counted.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- KEYS[4] reaped     zset  id of an expired claim -> when to forget it, in ms
-- ARGV[1] claim     string   <replica>.<number>
-- ARGV[2] location  string
-- ARGV[3] lease_ms  int
-- ARGV[4] first     int      1 when the attempt has had its first output
-- ARGV[5] tokens    int      that it is charged for in prefill; none after the first output
-- ARGV[6] elephant  int      1 when it counts as one
-- ARGV[7] caller    string   names its own tokens in prefill; "" for none
-- RETURNS [status]
--         status "done" | "again"
-- @include lib/clock
-- @include lib/claim
-- @include lib/tombstone

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local claim, location, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- read, decide
local now, stepped = model_clock(endpoints)
local holds = redis.call('HEXISTS', claimed, claim) == 1
local leased = redis.call('ZSCORE', claims, claim)
if holds and leased then
  return { 'again' }
end

-- write
redis.call('ZADD', claims, now + lease_ms, claim)
if not holds then
  local held = { location = location, lease_ms = lease_ms, first = ARGV[4] == '1' and 1 }
  if not held.first then
    held.tokens = tonumber(ARGV[5]) > 0 and ARGV[5]
    held.elephant = ARGV[6] == '1' and 1
    held.caller = ARGV[7] ~= '' and ARGV[7]
  end
  redis.call('HSET', claimed, claim, write_holding(held))
  if not leased then
    add_counts(endpoints, counts_of(held), 1)
  end
end
remove_tombstone(reaped, claim)
write_clock(endpoints, now, stepped)
keep_claims(endpoints, claims, claimed)
return { 'done' }
