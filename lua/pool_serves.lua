#!lua flags=no-writes
-- pool_serves: whether a role would get an upstream key now.
--
-- KEYS[1] mutes           hash    <key>@<host> -> since when and how often refused
-- KEYS[2] declared_epoch  string  number of what is declared
-- ARGV[1] epoch  int      of the declarations that the keys follow
-- ARGV[2] at     string   host and port of the route
-- ARGV[3] keys   string   "<key> <rank> ...", of the route, in order
-- ARGV[4] rank   int      of the role
-- RETURNS [status, retry_after_ms]
--         status "serves" | "restricted" (others may have one) | "exhausted" | "stale"
-- @include lib/keypool
-- @include lib/number
-- @include lib/time
if whole(redis.call('GET', KEYS[2])) ~= tonumber(ARGV[1]) then
  return { 'stale', 0 }
end
local rank = tonumber(ARGV[4])
local keys = read_keys(KEYS[1], ARGV[2], ARGV[3], server_ms())
if first_key(keys, rank, is_unmuted) then
  return { 'serves', 0 }
end
local why, retry_after_ms = refusal(keys, rank)
return { why, retry_after_ms }
