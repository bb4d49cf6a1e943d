-- cooldown: a pause of an endpoint because its provider has said so, or answers have.
--
-- `until_ms=... length_ms=... reason=...`. A deadline further away than its own length is void.
-- @include lib/number

-- In how many ms the pause ends, 0 when there is none; second, its reason.
local function cooldown_left(text, now)
  local until_ms, length_ms, reason =
    string.match(text or '', '^until_ms=(%d+) length_ms=(%d+) reason=(%S+)$')
  local left_ms = whole(until_ms) - now
  return left_ms > 0 and left_ms <= whole(length_ms) and left_ms or 0, reason
end
