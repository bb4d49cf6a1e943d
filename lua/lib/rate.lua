-- rate: tokens per second, and tokens per prompt, as they are learned.

-- Returns the positive number that a field holds; nil for whatever else stands there.
local function read_rate(text)
  local rate = tonumber(text)
  return rate and rate > 0 and rate < 2 ^ 53 and rate or nil
end
