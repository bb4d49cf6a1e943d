#!lua flags=allow-oom
-- pool_remove: forget a key that was added.
--
-- KEYS[1] declared        hash    added:<id> -> a key, encrypted | hash:<key> -> lowest role
-- KEYS[2] declared_epoch  string  its number
-- ARGV[1] id  string
-- RETURNS [status]
--         status "done" | "gone"
-- @include lib/declared
if redis.call('HDEL', KEYS[1], 'added:' .. ARGV[1]) == 0 then
  return { 'gone' }
end
raise_declared_epoch(KEYS[2])
return { 'done' }
