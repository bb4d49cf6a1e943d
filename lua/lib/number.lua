-- number: counts and dates, out of fields that anybody may have edited and into them.

-- Returns the whole number from 0 on that a field holds. Whatever else stands there is 0: also
-- `nan` and `inf`, which are numbers to Lua, and what a double cannot hold exactly.
local function whole(text)
  local number = tonumber(text) or 0
  if number >= 0 and number < 2 ^ 53 then
    return math.floor(number)
  end
  return 0
end

-- Spells a count or date. Redis takes twice as long over a number that it has to spell itself.
local function spell(number)
  return string.format('%d', number)
end
