#!lua
-- pool_add: keep an encrypted upstream key for all routes of a provider, once.
--
-- KEYS[1] declared        hash    added:<id> -> a key, encrypted | hash:<key> -> lowest role
-- KEYS[2] declared_epoch  string  its number
-- ARGV[1] id      string
-- ARGV[2] record  string   "key=... min_role=... made_ms=... made_by=... sealed=..."
-- RETURNS [status]
--         status "done" | "same" | "taken" (the id or the key is there already)
-- @include lib/declared
local declared, record = KEYS[1], ARGV[2]
local field = 'added:' .. ARGV[1]

local fields = redis.call('HGETALL', declared)
for i = 1, #fields, 2 do
  if fields[i] == field and fields[i + 1] == record then
    return { 'same' }
  end
  local key = string.match(fields[i], '^added:') and string.match(fields[i + 1], '^key=(%S+)')
  if fields[i] == field or (key and key == string.match(record, '^key=(%S+)')) then
    return { 'taken' }
  end
end

redis.call('HSET', declared, field, record)
raise_declared_epoch(KEYS[2])
return { 'done' }
