-- quota: how much of a quota is used: what its provider has reported, and what was taken since.
-- @include lib/number

local QUOTA_TTL_MS = '604800000' -- 7 days
-- What is taken outlives the report that it adds to.
local TAKEN_TTL_MS = '691200000' -- 8 days

-- Returns the number of 0 or more that a field holds; nil for whatever else stands there.
local function read_amount(text)
  local number = tonumber(text)
  return number and number >= 0 and number < 2 ^ 53 and number or nil
end

-- Returns used and limit, and since when takings count. Nothing when nobody has reported yet.
local function read_quota(quota, taken, now)
  local row = redis.call('HMGET', quota, 'used', 'limit', 'reset_at_ms', 'as_of_ms')
  local used, limit, since_ms = read_amount(row[1]), read_amount(row[2]), whole(row[4])
  if not used or not limit or since_ms == 0 then
    return nil
  end
  local reset_at_ms = whole(row[3])
  if reset_at_ms > 0 and now >= reset_at_ms then -- it has begun anew, and nobody has said so yet
    used, since_ms = 0, math.max(since_ms, reset_at_ms)
  end
  local newer = redis.call('ZCOUNT', taken, '(' .. spell(since_ms), '+inf')
  return used + newer, limit, since_ms
end
