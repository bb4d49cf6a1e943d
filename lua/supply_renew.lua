#!lua
-- supply_renew: lengthen the leases of places; one that was lost is put back.
--
-- KEYS[1] places  zset  claim id -> lease deadline in ms
-- ARGV[1] ids       string  "<claim> ...", at most 128
-- ARGV[2] lease_ms  int
-- RETURNS [status]
--         status "done"
-- @include lib/number
-- @include lib/quota
-- @include lib/time
local until_ms = spell(server_ms() + tonumber(ARGV[2]))
for claim in string.gmatch(ARGV[1], '%S+') do
  redis.call('ZADD', KEYS[1], until_ms, claim)
end
redis.call('PEXPIRE', KEYS[1], QUOTA_TTL_MS)
return { 'done' }
