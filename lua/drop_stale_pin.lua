#!lua flags=allow-oom
-- drop_stale_pin: forget a caller's pin to an endpoint that is no longer configured.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] pin        string  the caller's pin
-- ARGV[1] epoch     int
-- ARGV[2] location  string   where it leads
-- RETURNS [status]
--         status "done" | "gone" (it leads elsewhere by now) | "fenced"
-- @include lib/fence
local endpoints, pin, location = KEYS[1], KEYS[2], ARGV[2]
if is_fenced(endpoints, tonumber(ARGV[1])) then
  return { 'fenced' }
end
local text = redis.pcall('GET', pin)
if type(text) ~= 'string' or string.match(text, '^location=(%S+)') ~= location then
  return { 'gone' }
end
redis.call('DEL', pin)
return { 'done' }
