#!lua flags=no-writes
-- caller_limits: how much of each limit is taken.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- ARGV[1] scopes     string   "<scope> <rpm> <tpm> <parallel> <budget> <duration_ms> ..."
-- ARGV[2] window_ms  int      for how long requests and tokens count
-- RETURNS [status, under_way, rows]
--         status "done"; under_way how many reservations stand
--         rows ["<scope> <kind> <taken> <reset_ms> <would_refuse>", ...]: reset_ms is 0 when the
--         limit is whole, or when that cannot be told
-- @include lib/clock
-- @include lib/number
-- @include lib/scopes

-- bind
local limits, reservations = KEYS[1], KEYS[2]

-- read
local now = model_clock(limits)
local asked, names = read_limits(ARGV[1])
local texts = #names > 0 and redis.call('HMGET', limits, unpack(names))
look_at_limits(asked, texts, now, tonumber(ARGV[2]))
local rows = {}
for i, limit in ipairs(asked) do
  local counter = string.format('%s:would_refuse_%s', limit.scope, limit.kind)
  rows[i] = string.format('%s %s %d %d %d', limit.scope, limit.kind, limit.taken,
    renewed_in_ms(limit, now), whole(redis.call('HGET', limits, counter)))
end
return { 'done', redis.call('ZCARD', reservations), rows }
