#!lua
-- key_change: put another record in a key's place, unless somebody else has meanwhile.
--
-- KEYS[1] keys     hash  SHA-256 of a secret -> "id=... role=... ..."
-- KEYS[2] key_ids  hash  id -> SHA-256 of its secret
-- ARGV[1] id      string
-- ARGV[2] before  string   the record that was read
-- ARGV[3] after   string   the one to be kept
-- RETURNS [status]
--         status "done" | "changed" | "gone"
local keys = KEYS[1]
local before, after = ARGV[2], ARGV[3]

local digest = redis.call('HGET', KEYS[2], ARGV[1])
local record = digest and redis.call('HGET', keys, digest)
if not record then
  return { 'gone' }
end
if record ~= before and record ~= after then
  return { 'changed' }
end

redis.call('HSET', keys, digest, after)
return { 'done' }
