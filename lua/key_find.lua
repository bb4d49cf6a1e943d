#!lua flags=no-writes
-- key_find: read a key, by the digest of its secret or by its id.
--
-- A key holds only while both hashes have it, so that removing it from either revokes it.
--
-- KEYS[1] keys     hash  SHA-256 of a secret -> "id=... role=... ..."
-- KEYS[2] key_ids  hash  id -> SHA-256 of its secret
-- ARGV[1] digest  string   64 hex digits, or "" to look for the id
-- ARGV[2] id      string
-- RETURNS [status, digest, record]
--         status "done" | "none"
local keys, key_ids = KEYS[1], KEYS[2]
local digest, id = ARGV[1], ARGV[2]

if digest == '' then
  digest = redis.call('HGET', key_ids, id) or ''
end
local record = redis.call('HGET', keys, digest)
id = record and string.match(record, '^id=(%S+)')
if not id or redis.call('HGET', key_ids, id) ~= digest then
  return { 'none', '', '' }
end
return { 'done', digest, record }
