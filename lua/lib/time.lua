-- time: the server's wall clock. Scripts call it once; on Redis 7.0 it moves within a script.

local function server_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
