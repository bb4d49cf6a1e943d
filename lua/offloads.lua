#!lua flags=no-writes
-- offloads: the last requests that have gone to an offload route.
--
-- KEYS[1] offloads  zset  words about a request -> when, in ms
-- ARGV[1] within_ms  int  how long ago at the most
-- ARGV[2] most       int  how many at the most, the latest first
-- RETURNS [status, found]
--         status "done"; found [words, when, ...]
-- @include lib/number
-- @include lib/time

-- read
local since = server_ms() - tonumber(ARGV[1])
return { 'done', redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', spell(since), 'WITHSCORES',
  'LIMIT', 0, tonumber(ARGV[2])) }
