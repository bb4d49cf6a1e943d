#!lua flags=allow-oom
-- supply_reap: take back the places of the dead, also of an account that no route draws from any
-- more. Whoever takes one does so, too.
--
-- KEYS[1] places  zset  claim id -> lease deadline in ms
-- RETURNS [status, ended]
--         status "done"; ended how many
-- @include lib/number
-- @include lib/time
return { 'done', redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', spell(server_ms())) }
