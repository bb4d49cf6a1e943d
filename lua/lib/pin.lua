-- pin: the endpoint that a caller stays on, `location=... created_ms=... until_ms=...`.
--
-- Text under a key of its own. Nonsense is no pin.
-- @include lib/number

local PIN_TTL_MS = 300 * 1000

-- Returns {location, created_ms} while the pin stands, else nil. A date further away than its own
-- length is void; so is a pin older than the cap, where there is one (0 is none).
local function read_pin(text, now, max_age_ms)
  local location, created_ms, until_ms =
    string.match(text or '', '^location=(%S+) created_ms=(%d+) until_ms=(%d+)$')
  if not location then
    return nil
  end
  created_ms, until_ms = tonumber(created_ms), tonumber(until_ms)
  local stands = until_ms > now and until_ms <= now + PIN_TTL_MS and created_ms <= now
  if not stands or (max_age_ms > 0 and now - created_ms >= max_age_ms) then
    return nil
  end
  return { location = location, created_ms = created_ms }
end

-- Writes or slides a pin, over whatever stands there; it never outlives the cap.
local function write_pin(key, location, created_ms, now, max_age_ms)
  local until_ms = now + PIN_TTL_MS
  if max_age_ms > 0 then
    until_ms = math.min(until_ms, created_ms + max_age_ms)
  end
  local text =
    string.format('location=%s created_ms=%d until_ms=%d', location, created_ms, until_ms)
  redis.call('SET', key, text, 'PX', spell(until_ms - now))
end
