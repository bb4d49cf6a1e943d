#!lua
-- override: set or remove one run-time override of a model, under a new epoch.
--
-- From then on `admit` answers "stale" to whoever has not read it. A change that would leave the
-- model without any route in service is refused, unless forced; one that changes nothing raises
-- nothing.
--
-- KEYS[1] epoch      string  number of the run-time overrides
-- KEYS[2] overrides  hash    weight:<location> | disabled:<label> | setting:<name> |
--                            fallback:<name> | offload -> value
-- ARGV[1] field   string
-- ARGV[2] value   string   a decimal; 1 for "disabled"; words of the policy for "offload";
--                          "" removes it
-- ARGV[3] routes  string   "<location> <label> <weight> ...", all of the model, as configured
-- ARGV[4] force   int      1 when it may leave no route
-- RETURNS [status, epoch]
--         status "done" | "same" | "none_left"
-- @include lib/number
-- @include lib/time

-- bind
local field, value, routes = ARGV[1], ARGV[2], ARGV[3]

-- Whoever has edited it: what is no weight leaves the configured one standing.
local function weight_of(text, configured)
  local weight = tonumber(text)
  return weight and weight >= 0 and weight < math.huge and weight or tonumber(configured)
end

-- read, decide
local epoch = whole(redis.call('GET', KEYS[1]))
local after = {}
local fields = redis.call('HGETALL', KEYS[2])
for i = 1, #fields, 2 do
  after[fields[i]] = fields[i + 1]
end
if (after[field] or '') == value then
  return { 'same', spell(epoch) }
end
after[field] = value ~= '' and value or nil
local is_any_left = false
for location, label, weight in string.gmatch(routes, '(%S+) (%S+) (%S+)') do
  local is_disabled = after['disabled:' .. label]
  local effective = weight_of(after['weight:' .. location], weight)
  is_any_left = is_any_left or (not is_disabled and effective > 0)
end
if not is_any_left and value ~= '' and ARGV[4] ~= '1' then
  return { 'none_left', spell(epoch) }
end

-- write
local raised = spell(math.max(epoch + 1, server_ms()))
if value ~= '' then
  redis.call('HSET', KEYS[2], field, value)
else
  redis.call('HDEL', KEYS[2], field)
end
redis.call('SET', KEYS[1], raised)
return { 'done', raised }
