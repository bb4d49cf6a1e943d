-- hint: how large a prompt of a caller an endpoint was last seen to have cached.
--
-- `tokens=... until_ms=... generation=... fingerprint=... anchor=<length>:<digest>`, by location.
-- Digests are keyed; what they are of never comes here. A hint is void when its endpoint has failed
-- since, which raised the endpoint's generation.
-- @include lib/number

-- Returns the hint as a table while it is good, else nil.
local function read_hint(text, generation, now, ttl_ms)
  local tokens, until_ms, of, fingerprint, anchor = string.match(text or '',
    '^tokens=(%d+) until_ms=(%d+) generation=(%d+) fingerprint=(%S*) anchor=(%S*)$')
  if not tokens then
    return nil
  end
  local left_ms = tonumber(until_ms) - now
  if left_ms <= 0 or left_ms > ttl_ms or tonumber(of) ~= generation then
    return nil
  end
  return { tokens = whole(tokens), fingerprint = fingerprint, anchor = anchor }
end

-- Returns the hint if it is of this conversation, or if that is not known; else nil.
local function hint_of(hint, fingerprint)
  if hint and (fingerprint == '' or hint.fingerprint == fingerprint) then
    return hint
  end
  return nil
end

-- The tokens of a prompt that an endpoint does not have cached.
local function uncached(total, hint)
  return hint and math.max(total - hint.tokens, 0) or total
end
