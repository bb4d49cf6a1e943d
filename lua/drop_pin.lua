#!lua flags=allow-oom
-- drop_pin: forget a caller's pin, on an operator's word.
--
-- KEYS[1] pin  string  the caller's pin
-- RETURNS [status, pin, left_ms]
--         status "done"; pin what it was, "" for none
local pin = redis.pcall('GET', KEYS[1])
redis.call('DEL', KEYS[1])
return { 'done', type(pin) == 'string' and pin or '', 0 }
