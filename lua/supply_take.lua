#!lua
-- supply_take: take one request of a quota, or a place of so many at a time, for a claim.
--
-- Repeating it takes nothing more. What its holder does not renew of a place comes back.
--
-- KEYS[1] quota   hash  what its provider has reported
-- KEYS[2] taken   zset  claim id -> when it has taken of the quota, in ms
-- KEYS[3] places  zset  claim id -> lease deadline in ms
-- ARGV[1] kind      string  "quota" | "places"
-- ARGV[2] claim     string
-- ARGV[3] limit     int     of places
-- ARGV[4] lease_ms  int     of a place
-- RETURNS [status]
--         status "taken" | "unknown" (nobody has reported) | "exhausted" | "full"
-- @include lib/clock
-- @include lib/number
-- @include lib/quota
-- @include lib/time

-- bind
local quota, taken, places = KEYS[1], KEYS[2], KEYS[3]
local kind, claim, limit, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = server_ms()

if kind == 'places' then
  -- read, decide: a deadline further away than a lease is void, but for small steps of the clock
  local latest_ms = spell(now + lease_ms + CLOCK_SLACK_MS)
  local held = redis.call('ZCOUNT', places, '(' .. spell(now), latest_ms)
  if not redis.call('ZSCORE', places, claim) and held >= limit then
    return { 'full' }
  end
  -- write
  redis.call('ZREMRANGEBYSCORE', places, '-inf', spell(now))
  redis.call('ZREMRANGEBYSCORE', places, '(' .. latest_ms, '+inf')
  redis.call('ZADD', places, spell(now + lease_ms), claim)
  redis.call('PEXPIRE', places, QUOTA_TTL_MS)
  return { 'taken' }
end

-- read, decide
local used, most = read_quota(quota, taken, now)
if redis.call('ZSCORE', taken, claim) then
  return { 'taken' }
elseif not used then
  return { 'unknown' }
elseif used + 1 > most then
  return { 'exhausted' }
end

-- write
redis.call('ZADD', taken, spell(now), claim)
redis.call('PEXPIRE', taken, TAKEN_TTL_MS)
return { 'taken' }
