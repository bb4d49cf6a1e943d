#!lua flags=allow-oom
-- supply_release: give back a claim's place; or what it has taken of a quota, if nothing was sent.
--
-- KEYS[1] taken   zset  claim id -> when it has taken of the quota, in ms
-- KEYS[2] places  zset  claim id -> lease deadline in ms
-- ARGV[1] claim   string
-- ARGV[2] unsent  int     1 when nothing was sent under the claim
-- RETURNS [status]
--         status "done"
redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[2] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return { 'done' }
