#!lua flags=allow-oom
-- key_revoke: forget a key.
--
-- KEYS[1] keys     hash  SHA-256 of a secret -> "id=... role=... ..."
-- KEYS[2] key_ids  hash  id -> SHA-256 of its secret
-- ARGV[1] id  string
-- RETURNS [status]
--         status "done" | "gone"
local id = ARGV[1]
local digest = redis.call('HGET', KEYS[2], id)
if digest then
  redis.call('HDEL', KEYS[1], digest)
  redis.call('HDEL', KEYS[2], id)
end
return { digest and 'done' or 'gone' }
