#!lua
-- pool_retier: keep a key for a role and above, or with "free" for nobody.
--
-- A key that was added says so itself. Any other is named by its digest, and what is said of it
-- stays when the key disappears. What changes nothing raises no number.
--
-- KEYS[1] declared        hash    added:<id> -> a key, encrypted | hash:<key> -> lowest role
-- KEYS[2] declared_epoch  string  its number
-- ARGV[1] field     string   added:<id> | hash:<key>
-- ARGV[2] min_role  string
-- RETURNS [status]
--         status "done" | "same" | "gone" (no key was added under this id)
-- @include lib/declared
local declared, field, min_role = KEYS[1], ARGV[1], ARGV[2]

local before = redis.call('HGET', declared, field)
local after = min_role
if string.match(field, '^added:') then
  if not before then
    return { 'gone' }
  end
  after = string.gsub(before, 'min_role=%S*', 'min_role=' .. min_role, 1)
end
if (before or 'free') == after then
  return { 'same' }
end

if after == 'free' then
  redis.call('HDEL', declared, field)
else
  redis.call('HSET', declared, field, after)
end
raise_declared_epoch(KEYS[2])
return { 'done' }
