#!lua flags=no-writes
-- rows: everything live about a model's endpoints, and how they stand by now.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- ARGV[1] limited        string  "<location>|<limits> ..." of those that have some (see lib/limit)
-- ARGV[2] window_ms      int     for how long requests and tokens count
-- ARGV[3] retry_percent  int     of the budget of failover, -1 for none
-- ARGV[4] retry_floor    int
-- RETURNS [status, claims, fields, limits, cooldowns, retries]
--         status "done"; claims how many stand; fields [field, value, ...]
--         limits, cooldowns [row, ...] and retries: as of lib/standing
-- @include lib/clock
-- @include lib/standing

local now = model_clock(KEYS[1])
local fields = redis.call('HGETALL', KEYS[1])
local seen = by_name(fields)
return { 'done', redis.call('ZCARD', KEYS[2]), fields,
  limits_now(seen, ARGV[1], now, tonumber(ARGV[2])), cooldowns_now(seen, now),
  retries_now(seen.retries, now, tonumber(ARGV[3]), tonumber(ARGV[4])) }
