#!lua flags=no-writes
-- pin: read a caller's pin.
--
-- KEYS[1] pin  string  the caller's pin
-- RETURNS [status, pin, left_ms]
--         status "done"; pin "location=... created_ms=... until_ms=...", "" for none
-- @include lib/number
-- @include lib/time
local pin = redis.pcall('GET', KEYS[1])
if type(pin) ~= 'string' then
  return { 'done', '', 0 }
end
local until_ms = whole(string.match(pin, 'until_ms=(%d+)$'))
return { 'done', pin, math.max(until_ms - server_ms(), 0) }
