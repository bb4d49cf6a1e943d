#!lua flags=no-writes
-- pool_declared: what operators have declared of a provider's keys, if it has changed.
--
-- KEYS[1] declared        hash    added:<id> -> a key, encrypted | hash:<key> -> lowest role
-- KEYS[2] declared_epoch  string  its number
-- ARGV[1] epoch  int  as it was read last, -1 for never
-- RETURNS [status, epoch, fields]
--         status "done" | "same"; epoch 0 when there has never been anything; fields [field, text,
--         ...], empty when it is the same
-- @include lib/number
local epoch = whole(redis.call('GET', KEYS[2]))
if epoch == tonumber(ARGV[1]) then
  return { 'same', spell(epoch), {} }
end
return { 'done', spell(epoch), redis.call('HGETALL', KEYS[1]) }
