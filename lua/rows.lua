#!lua flags=no-writes
-- rows: everything live about a model's endpoints.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- RETURNS [status, claims, fields]
--         status "done"; claims how many stand; fields [field, value, ...]
return { 'done', redis.call('ZCARD', KEYS[2]), redis.call('HGETALL', KEYS[1]) }
