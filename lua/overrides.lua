#!lua flags=no-writes
-- overrides: a model's run-time overrides and their number.
--
-- KEYS[1] epoch      string  number of the run-time overrides
-- KEYS[2] overrides  hash    weight:<location> | disabled:<label> -> value
-- RETURNS [status, epoch, fields]
--         status "done"; epoch 0 when there have never been any; fields [field, value, ...]
-- @include lib/number
return { 'done', spell(whole(redis.call('GET', KEYS[1]))), redis.call('HGETALL', KEYS[2]) }
