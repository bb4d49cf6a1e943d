#!lua flags=no-writes
-- key_list: some of all keys, and where to go on. One may come twice.
--
-- KEYS[1] keys     hash  SHA-256 of a secret -> "id=... role=... ..."
-- KEYS[2] key_ids  hash  id -> SHA-256 of its secret
-- ARGV[1] cursor  string   "0" to begin, then the one that was answered
-- ARGV[2] count   int      how many, about
-- RETURNS [status, cursor, fields]
--         status "done"; cursor "0" at the end; fields [digest, record, ...]
local keys, key_ids = KEYS[1], KEYS[2]
local found = redis.call('HSCAN', key_ids, ARGV[1], 'COUNT', ARGV[2])
local fields = {}
for i = 2, #found[2], 2 do
  local record = redis.call('HGET', keys, found[2][i])
  if record then
    fields[#fields + 1] = found[2][i]
    fields[#fields + 1] = record
  end
end
return { 'done', found[1], fields }
