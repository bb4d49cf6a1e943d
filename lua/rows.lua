#!lua flags=no-writes
-- rows: everything live about a model's endpoints.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- RETURNS [status, fields]
--         status "done"; fields [field, value, ...]
return { 'done', redis.call('HGETALL', KEYS[1]) }
