#!lua flags=no-writes
-- coordinator: who coordinates the cluster, and what that has published.
--
-- KEYS[1] lease      hash  holder, epoch, until_ms, lease_ms, about
-- KEYS[2] published  hash  name -> "epoch=... at_ms=... <value>"
-- RETURNS [status, now_ms, lease, published]
--         status "done"; lease, published [field, value, ...]
-- @include lib/time
return { 'done', server_ms(), redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]) }
