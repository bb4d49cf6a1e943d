-- gate: a limit that the whole cluster keeps, those who hold a place under it, and their tickets.
--
-- A ticket, `<replica>.<number>`, is one wait and then one place. It is in one of three sorted
-- sets: `holders`, `line` or `aside`. `tickets` has what is known of it, `lease_ms=15000 number=7`;
-- the number in line goes when its replica has confirmed the place.
--
-- A gate here is a table with the names of its keys: row, holders, line, aside, tickets, frozen.
-- @include lib/clock
-- @include lib/number

-- 7 and 8 days: a learned limit outlives a quiet week.
local GATE_TTL_MS = '604800000'
local PLACES_TTL_MS = '691200000'
local CONFIRM_MS = 1000 -- in which a grant is confirmed, or goes on to the next in line

-- Reads the time and the limit. With `most` the limit has been learned, between 1 and that, and
-- begins as `limit`; with 0 it is what the last call to enter has brought.
local function open_gate(gate, limit, most)
  local row = redis.call('HMGET', gate.row, 'at_ms', 'limit', 'successes', 'probing')
  gate.now, gate.stepped = clock_after(row[1])
  gate.kept_limit, gate.successes, gate.is_probing = whole(row[2]), whole(row[3]), row[4] == '1'
  gate.limit = math.max(gate.kept_limit > 0 and gate.kept_limit or limit, 1)
  if most > 0 then
    gate.limit = math.min(gate.limit, most)
  end
end

local function close_gate(gate)
  write_clock(gate.row, gate.now, gate.stepped)
  redis.call('PEXPIRE', gate.row, GATE_TTL_MS)
end

local function keep_places(gate)
  redis.call('PEXPIRE', gate.holders, PLACES_TTL_MS)
  redis.call('PEXPIRE', gate.tickets, PLACES_TTL_MS)
end

local function keep_line(gate)
  redis.call('PEXPIRE', gate.line, PLACES_TTL_MS)
  redis.call('PEXPIRE', gate.tickets, PLACES_TTL_MS)
end

local function write_ticket(lease_ms, number)
  return string.format('lease_ms=%d number=%d', lease_ms, number)
end

-- Its number in line, of a ticket that waits or whose place is not confirmed; else nil.
local function number_of(text)
  local number = string.match(text or '', 'number=(%d+)')
  return number and whole(number)
end

-- Takes a ticket out of whatever it is in, but for the holders.
local function leave_line(gate, ticket)
  return redis.call('ZREM', gate.line, ticket) + redis.call('ZREM', gate.aside, ticket)
end

-- Gives a ticket a place for a lease. The first write takes no memory where it had one already.
local function hold_place(gate, ticket, lease_ms)
  local was_new = redis.call('ZADD', gate.holders, spell(gate.now + lease_ms), ticket)
  redis.call('HSET', gate.tickets, ticket, string.format('lease_ms=%d', lease_ms))
  return was_new
end
