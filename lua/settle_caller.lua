#!lua flags=allow-oom
-- settle_caller: end a request's reservation and correct what it has taken by what it has used.
--
-- Ends a reservation once. What was used beyond it is charged at once, what was not used comes back
-- to where it was taken from. One that has lapsed in the meantime is corrected, too, once, and
-- gives no place back. An unknown or ended one changes nothing.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- KEYS[4] lapsed        zset  id of an expired reservation -> when to forget it, in ms
-- ARGV[1] reservation  string   <replica>.<number>
-- ARGV[2] held         string   what it holds, as reserve_caller answered; "" when nobody heard it
-- ARGV[3] outcome      string   "used" | "unused" (nothing was sent: all comes back)
-- ARGV[4] tokens       int      that were used
-- ARGV[5] nanousd      int      that they have cost
-- RETURNS [status]
--         status "done" | "late" | "gone"
-- @include lib/clock
-- @include lib/correction
-- @include lib/number
-- @include lib/reservation
-- @include lib/tombstone
-- @include lib/window

-- bind
local limits, reservations, reserved, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reservation, outcome = ARGV[1], ARGV[3]
local tokens, nanousd = tonumber(ARGV[4]), tonumber(ARGV[5])
if outcome ~= 'used' and outcome ~= 'unused' then
  return redis.error_reply('BADARG outcome: ' .. outcome)
end

-- Corrects what was taken of windows: what was used is more or less than that by a difference.
local function correct_windows(held, kind, difference, now)
  local names, texts = fields_of(limits, held, kind)
  for i, name in ipairs(difference ~= 0 and names or {}) do
    local window = read_window(texts[i], now)
    if window then
      correct(window, held.at, difference, now)
      redis.call('HSET', limits, name, write_window(window))
    end
  end
end

-- read
local now, stepped = model_clock(limits)
local left_ms = redis.call('PTTL', limits)
local standing = redis.call('HGET', reserved, reservation)
local held = read_reservation(standing)
local stands = standing or redis.call('ZSCORE', reservations, reservation)
if not stands and not find_tombstone(lapsed, reservation, now) then
  return { 'gone' }
end
held = held or read_reservation(ARGV[2]) -- edited by hand or gone: its holder knows what it holds

-- write, freeing first: this must run when the server is out of memory
if stands then
  redis.call('ZREM', reservations, reservation)
  redis.call('HDEL', reserved, reservation)
else
  remove_tombstone(lapsed, reservation)
end
if held then
  if stands then
    give_back_places(limits, held)
  else
    held.is_spent = '1'
  end
  correct_windows(held, 'rpm', outcome == 'unused' and -1 or 0, now)
  correct_windows(held, 'tpm', tokens - whole(held.tokens), now)
  spend_held(limits, held, nanousd, now)
  write_clock(limits, now, stepped)
  keep_limits(limits, left_ms, LIMITS_TTL_MS)
end
return { stands and 'done' or 'late' }
