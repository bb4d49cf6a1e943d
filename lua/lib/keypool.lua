-- keypool: the upstream keys of a route, and which of them serve a role now.
--
-- A key is muted at one address: what one engine does not take may be good at another. Text under
-- `<key>@<host>` says for how long, and how often it was refused while its caller had no other:
-- `failures=1 for_ms=20000 until_ms=1700000020000 status=429 by=<lease>`. Nonsense is no mute.
-- @include lib/number

-- For how long a key is muted yet. A date further away than its own length is void.
local function muted_ms(text, now)
  local for_ms, until_ms = string.match(text or '', 'for_ms=(%d+) until_ms=(%d+)')
  local left = whole(until_ms) - now
  return left > 0 and left <= whole(for_ms) and left or 0
end

-- Reads a route's keys, `<key> <rank> ...` in order, where a rank is the lowest that may use it.
local function read_keys(mutes, at, packed, now)
  local keys, fields = {}, {}
  for id, rank in string.gmatch(packed, '(%S+) (%d+)') do
    keys[#keys + 1] = { id = id, rank = tonumber(rank) }
    fields[#fields + 1] = id .. '@' .. at
  end
  if #fields == 0 then
    return keys
  end
  for i, text in ipairs(redis.call('HMGET', mutes, unpack(fields))) do
    keys[i].text = text
    keys[i].muted_ms = muted_ms(text, now)
  end
  return keys
end

-- Returns the first key that `is_fit`, of those that a rank may use: most reserved, then in order.
local function first_key(keys, rank, is_fit)
  local best = nil
  for _, key in ipairs(keys) do
    if key.rank <= rank and (not best or key.rank > best.rank) and is_fit(key) then
      best = key
    end
  end
  return best
end

local function is_unmuted(key)
  return key.muted_ms == 0
end

-- Says why a rank gets no key, and in how many ms it may: others have them all, or nobody gets one.
local function refusal(keys, rank)
  local soonest_ms = 0
  for _, key in ipairs(keys) do
    if key.rank <= rank and key.muted_ms > 0 then
      soonest_ms = soonest_ms > 0 and math.min(soonest_ms, key.muted_ms) or key.muted_ms
    end
  end
  return first_key(keys, math.huge, is_unmuted) and 'restricted' or 'exhausted', soonest_ms
end
