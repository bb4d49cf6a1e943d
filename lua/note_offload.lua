#!lua
-- note_offload: keep that a request has gone to the offload route, among the last such requests.
--
-- Repeating it changes nothing but the time.
--
-- KEYS[1] offloads  zset  words about a request -> when, in ms
-- ARGV[1] words   string
-- ARGV[2] most    int      how many are kept
-- ARGV[3] ttl_ms  int      and for how long
-- RETURNS [status]
--         status "done"
-- @include lib/number
-- @include lib/time

-- bind
local offloads, ttl_ms = KEYS[1], tonumber(ARGV[3])

-- write
local now = server_ms()
redis.call('ZADD', offloads, spell(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', offloads, '-inf', spell(now - ttl_ms))
redis.call('ZREMRANGEBYRANK', offloads, 0, -1 - tonumber(ARGV[2]))
redis.call('PEXPIRE', offloads, ARGV[3])
return { 'done' }
