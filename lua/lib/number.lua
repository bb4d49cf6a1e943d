-- number: counts and dates out of fields that anybody may have edited.

-- Returns the whole number from 0 on that a field holds. Whatever else stands there is 0: also
-- `nan` and `inf`, which are numbers to Lua, and what a double cannot hold exactly.
local function whole(text)
  local number = tonumber(text) or 0
  if number >= 0 and number < 2 ^ 53 then
    return math.floor(number)
  end
  return 0
end
