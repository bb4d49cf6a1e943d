#!lua flags=no-writes
-- profile: what the coordinator has learned of a model.
--
-- KEYS[1] profile  string  "epoch=... at_ms=... <JSON>"
-- RETURNS [status, now_ms, profile]
--         status "done"; profile "" when there is none
-- @include lib/time
return { 'done', server_ms(), redis.call('GET', KEYS[1]) or '' }
