#!lua
-- supply_renew: lengthen the leases of places, and name those that are lost.
--
-- A place that ends while this is under way must not come back by it: one that is not there is put
-- back only when its holder, having been told so, says that it still holds it.
--
-- KEYS[1] places  zset  claim id -> lease deadline in ms
-- ARGV[1] ids       string  "<claim> ...", at most 128
-- ARGV[2] lease_ms  int
-- ARGV[3] put_back  int     1 when those that are lost are to be put back
-- RETURNS [status, unknown]
--         status "done"; unknown "<claim> ..."
-- @include lib/number
-- @include lib/quota
-- @include lib/time
local until_ms, unknown = spell(server_ms() + tonumber(ARGV[2])), {}
for claim in string.gmatch(ARGV[1], '%S+') do
  if ARGV[3] == '1' or redis.call('ZSCORE', KEYS[1], claim) then
    redis.call('ZADD', KEYS[1], until_ms, claim)
  else
    unknown[#unknown + 1] = claim
  end
end
redis.call('PEXPIRE', KEYS[1], QUOTA_TTL_MS)
return { 'done', table.concat(unknown, ' ') }
