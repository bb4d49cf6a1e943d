#!lua flags=no-writes
-- pool_mutes: which of a provider's keys are muted, and what is remembered of refusals.
--
-- KEYS[1] mutes  hash  <key>@<host> -> since when and how often refused
-- RETURNS [status, now_ms, fields]
--         status "done"; now_ms the server's clock; fields [<key>@<host>, text, ...]
-- @include lib/time
return { 'done', server_ms(), redis.call('HGETALL', KEYS[1]) }
