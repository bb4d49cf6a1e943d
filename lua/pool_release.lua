#!lua
-- pool_release: record how a request went that was sent with an upstream key, and whether it may be
-- sent with another.
--
-- A key that was refused is muted, and so is one that has failed when all others have been tried.
-- A role's last key is muted only when it was refused the third time in a row, and then for 15 s,
-- twice as long each time, at most as long as any. A repeated call counts once.
--
-- KEYS[1] mutes  hash  <key>@<host> -> since when and how often refused
-- ARGV[1] at       string   host and port of the route
-- ARGV[2] keys     string   "<key> <rank> ...", of the route, in order
-- ARGV[3] tried    string   keys that this attempt was sent with, this one among them
-- ARGV[4] rank     int      of the caller's role
-- ARGV[5] key      string   the one that was used
-- ARGV[6] lease    string   names this use of it
-- ARGV[7] fault    string   "none" (it was served) | "key" (it was refused) | "transient"
-- ARGV[8] status   int      the upstream's, 0 is none
-- ARGV[9] mute_ms  int      how long a key is muted
-- RETURNS [status, muted_for_ms, serves_others]
--         status "served" | "rotated" (another may be tried) | "muted" | "propagate"
--         muted_for_ms 0 when it is not muted by this; serves_others 1 when a caller who may use
--         all keys would get another one now
-- @include lib/keypool
-- @include lib/number
-- @include lib/time

local FREE_FAILURES, FIRST_MUTE_MS, LASTS_MS = 2, 15000, '604800000'

-- bind
local mutes, fault, mute_ms = KEYS[1], ARGV[7], tonumber(ARGV[9])
local rank, lease = tonumber(ARGV[4]), ARGV[6]
local field = ARGV[5] .. '@' .. ARGV[1]

-- read
local now = server_ms()
local keys = read_keys(mutes, ARGV[1], ARGV[2], now)
local text = redis.call('HGET', mutes, field) or ''
local stands_ms = muted_ms(text, now)
local failures = whole(string.match(text, 'failures=(%d+)'))
local is_repeated = string.match(text, 'by=(%S+)') == lease
local tried = {}
for id in string.gmatch(ARGV[3], '%S+') do
  tried[id] = true
end

local function is_other(key)
  return key.muted_ms == 0 and key.id ~= ARGV[5]
end

local function is_untried(key)
  return is_other(key) and not tried[key.id]
end

local function write(count, for_ms, until_ms)
  local said = string.format('failures=%d for_ms=%d until_ms=%d status=%d by=%s',
    count, for_ms, until_ms, tonumber(ARGV[8]), lease)
  redis.call('HSET', mutes, field, said)
  redis.call('PEXPIRE', mutes, LASTS_MS)
end

-- decide
local serves_others = first_key(keys, math.huge, is_other) and 1 or 0
if fault == 'none' then
  if stands_ms == 0 and text ~= '' then
    redis.call('HDEL', mutes, field)
  elseif failures > 0 then
    write(0, whole(string.match(text, 'for_ms=(%d+)')), now + stands_ms)
  end
  return { 'served', 0, serves_others }
end
local rotates = first_key(keys, rank, is_untried) ~= nil
local for_ms = 0
if first_key(keys, rank, is_other) then
  for_ms = (fault == 'key' or not rotates) and mute_ms or 0
elseif fault == 'key' then
  failures = failures + (is_repeated and 0 or 1)
  if failures > FREE_FAILURES then
    for_ms = math.min(FIRST_MUTE_MS * 2 ^ math.min(failures - FREE_FAILURES - 1, 20), mute_ms)
  end
  if for_ms == 0 then
    write(failures, 0, 0)
  end
end

-- write
if for_ms > 0 then
  write(failures, math.max(for_ms, stands_ms), now + math.max(for_ms, stands_ms))
end
return { rotates and 'rotated' or for_ms > 0 and 'muted' or 'propagate', for_ms, serves_others }
