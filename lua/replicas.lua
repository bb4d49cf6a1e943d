#!lua flags=no-writes
-- replicas: who has said lately that it lives, and what ids are keyed with.
--
-- KEYS[1] replicas  hash  replica id -> "seen_ms=... host=... version=... config=... secret=..."
-- KEYS[2] salt      string  what ids are keyed with where there is no secret
-- RETURNS [status, now_ms, salt, fields]
--         status "done"; salt "" where none is in use; fields [replica, about, ...]
-- @include lib/time
return { 'done', server_ms(), redis.call('GET', KEYS[2]) or '', redis.call('HGETALL', KEYS[1]) }
