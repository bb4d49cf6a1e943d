#!lua flags=no-writes
-- replicas: who has said lately that it lives.
--
-- KEYS[1] replicas  hash  replica id -> "seen_ms=... host=... version=... config=..."
-- RETURNS [status, now_ms, fields]
--         status "done"; fields [replica, about, ...]
-- @include lib/time
return { 'done', server_ms(), redis.call('HGETALL', KEYS[1]) }
