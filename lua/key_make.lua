#!lua
-- key_make: keep a caller's key by the digest of its secret, under an id that no other has.
--
-- A key is there until it is revoked: it has no TTL, and its expiry is a rule.
--
-- KEYS[1] keys     hash  SHA-256 of a secret -> "id=... role=... ..."
-- KEYS[2] key_ids  hash  id -> SHA-256 of its secret
-- ARGV[1] id      string
-- ARGV[2] digest  string   64 hex digits
-- ARGV[3] record  string   "id=... role=... ..."
-- RETURNS [status]
--         status "done" | "taken"
local keys, key_ids = KEYS[1], KEYS[2]
local id, digest = ARGV[1], ARGV[2]

local holder = redis.call('HGET', key_ids, id)
if holder and holder ~= digest and redis.call('HEXISTS', keys, holder) == 1 then
  return { 'taken' }
end

redis.call('HSET', keys, digest, ARGV[3])
redis.call('HSET', key_ids, id, digest)
return { 'done' }
