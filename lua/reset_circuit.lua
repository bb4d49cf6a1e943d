#!lua flags=allow-oom
-- reset_circuit: make an endpoint healthy again, on an operator's word: its circuit is closed, its
-- cooldown over, and what has failed is forgotten. What it holds stays.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- ARGV[1] location  string
-- RETURNS [status, circuit]
--         status "done"; circuit "open" | "half_open" | "closed", as it was before
local endpoints, location = KEYS[1], ARGV[1]
local circuit = redis.call('HGET', endpoints, location .. ':circuit')
redis.call('HDEL', endpoints, location .. ':circuit', location .. ':failures',
  location .. ':availability', location .. ':opened_at_ms', location .. ':probe',
  location .. ':probe_until_ms', location .. ':auth_rejections', location .. ':last_status',
  location .. ':conn', location .. ':cooldown', location .. ':succeeded', location .. ':failed')
local fails = string.format('%s:fails_', location)
for _, name in ipairs(redis.call('HKEYS', endpoints)) do
  if string.sub(name, 1, #fails) == fails then
    redis.call('HDEL', endpoints, name)
  end
end
return { 'done', circuit or 'closed' }
