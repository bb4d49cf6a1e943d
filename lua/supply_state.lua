#!lua flags=no-writes
-- supply_state: how much of a quota is used by now, and how many places are held.
--
-- KEYS[1] quota   hash  what its provider has reported
-- KEYS[2] taken   zset  claim id -> when it has taken of the quota, in ms
-- KEYS[3] places  zset  claim id -> lease deadline in ms
-- RETURNS [status, now_ms, used, limit, reset_at_ms, places]
--         status "done"; used, limit decimals, "" when nobody has reported
-- @include lib/number
-- @include lib/quota
-- @include lib/time
local now = server_ms()
local used, limit = read_quota(KEYS[1], KEYS[2], now)
local places = redis.call('ZCOUNT', KEYS[3], '(' .. spell(now), '+inf')
return { 'done', now, used and string.format('%.17g', used) or '',
  limit and string.format('%.17g', limit) or '',
  whole(redis.call('HGET', KEYS[1], 'reset_at_ms')), places }
