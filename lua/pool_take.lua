#!lua
-- pool_take: the upstream key that a caller's request is sent with next.
--
-- A caller stays with its key for five minutes, while the key serves, the caller's role is the same
-- and no declaration has moved the key that it would get first. Others get the most reserved key
-- that they may use, then the one listed first. Repeating the call answers the same.
--
-- KEYS[1] mutes           hash    <key>@<host> -> since when and how often refused
-- KEYS[2] bound           string  the key that the caller stays with
-- KEYS[3] declared_epoch  string  number of what is declared
-- ARGV[1] epoch   int      of the declarations that the keys follow
-- ARGV[2] at      string   host and port of the route
-- ARGV[3] keys    string   "<key> <rank> ...", of the route, in order
-- ARGV[4] tried   string   keys that this attempt was sent with already
-- ARGV[5] rank    int      of the caller's role
-- ARGV[6] binds   int      1 where a caller is known, who stays with its key
-- RETURNS [status, key, retry_after_ms]
--         status "taken" | "restricted" (others may have one) | "exhausted" | "stale"
-- @include lib/keypool
-- @include lib/number
-- @include lib/time

local BINDING_MS = 300 * 1000

-- bind
local bound, declared_epoch = KEYS[2], KEYS[3]
local rank, binds = tonumber(ARGV[5]), ARGV[6] == '1'

-- read
local kept = redis.call('MGET', declared_epoch, bound)
if whole(kept[1]) ~= tonumber(ARGV[1]) then
  return { 'stale', '', 0 }
end
local now = server_ms()
local keys = read_keys(KEYS[1], ARGV[2], ARGV[3], now)
local tried = {}
for id in string.gmatch(ARGV[4], '%S+') do
  tried[id] = true
end

-- decide
local function serves(key)
  return key.muted_ms == 0 and not tried[key.id]
end

local preferred = first_key(keys, rank, function() return true end)
local chosen = first_key(keys, rank, serves)
if not chosen then
  local why, retry_after_ms = refusal(keys, rank)
  return { why, '', retry_after_ms }
end
local terms = string.format('preferred=%s rank=%d', preferred.id, rank)
local id, until_ms = string.match(
  binds and kept[2] or '', '^key=(%S+) ' .. terms .. ' until_ms=(%d+)$')
local left_ms = whole(until_ms) - now
if left_ms > 0 and left_ms <= BINDING_MS then
  local stays = first_key(keys, rank, function(key) return key.id == id and serves(key) end)
  if stays then
    return { 'taken', stays.id, 0 }
  end
end

-- write
if binds then
  local text = string.format('key=%s %s until_ms=%d', chosen.id, terms, now + BINDING_MS)
  redis.call('SET', bound, text, 'PX', spell(BINDING_MS))
end
return { 'taken', chosen.id, 0 }
