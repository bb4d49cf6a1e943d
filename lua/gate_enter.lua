#!lua
-- gate_enter: take a place, or a number in line for one.
--
-- Whoever stands in line goes first, also where this call brings a higher limit or takes back the
-- places of the dead. Repeating it changes nothing, but confirms what has been granted meanwhile.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_line     zset  ticket -> number
-- KEYS[4] gate_aside    zset  ticket -> when to forget it, in ms
-- KEYS[5] gate_tickets  hash  ticket -> what is known of it
-- KEYS[6] gate_frozen   set   replicas that have not confirmed a grant
-- ARGV[1] ticket    string   <replica>.<number>
-- ARGV[2] lease_ms  int
-- ARGV[3] wait      string   without a place: "line" to wait for one, "no" to leave at once, "over"
--                            to take one over the limit, also out of the line
-- ARGV[4] limit     int      where none has been learned
-- ARGV[5] most      int      up to which it is learned; 0 where it is what this call brings
-- ARGV[6] publish   string   "PUBLISH" | "SPUBLISH"
-- ARGV[7] channels  string   that with a replica's id behind it is the replica's channel
-- RETURNS [status, number, granted]
--         status "held" | "waiting" | "full"; number in line; granted "<ticket> ...", the caller's
--         own that have got a place by this
-- @include lib/gate
-- @include lib/hand_on
-- @include lib/number

-- bind
local gate = { row = KEYS[1], holders = KEYS[2], line = KEYS[3], aside = KEYS[4],
  tickets = KEYS[5], frozen = KEYS[6] }
local ticket, lease_ms, wait = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local limit, most, own = tonumber(ARGV[4]), tonumber(ARGV[5]), string.match(ARGV[1], '^([^.]+)%.')
if not own or not (wait == 'line' or wait == 'no' or wait == 'over') then
  return redis.error_reply('BADARG ticket or wait: ' .. ticket .. ' ' .. wait)
end

-- A number behind those of all who wait, whatever has become of the row.
local function next_number()
  local last = redis.call('HGET', gate.row, 'last_number')
  local behind = last or redis.call('ZREVRANGE', gate.line, 0, 0, 'WITHSCORES')[2]
  return whole(behind) + 1
end

-- read
open_gate(gate, limit, most)
local known = redis.call('HGET', gate.tickets, ticket)
if known and redis.call('ZSCORE', gate.holders, ticket) then
  hold_place(gate, ticket, lease_ms)
  return { 'held', number_of(known) or 0, '' }
elseif known and wait ~= 'over' then
  return { 'waiting', number_of(known) or 0, '' }
end

-- those before: a limit is brought by who arrives, not by who has waited
if most == 0 and not known and limit ~= gate.kept_limit then
  gate.limit = limit
  redis.call('HSET', gate.row, 'limit', spell(limit))
  redis.call('PEXPIRE', gate.row, GATE_TTL_MS)
end
reap_gate(gate)
local granted = table.concat(hand_on(gate, own, ARGV[6], ARGV[7]), ' ')

-- decide
local is_free = gate.held < gate.limit and gate.waiting == 0
if wait == 'no' and not is_free then
  return { 'full', 0, granted }
end

-- take
if is_free or wait == 'over' then
  if known then
    leave_line(gate, ticket)
  end
  hold_place(gate, ticket, lease_ms)
  close_gate(gate)
  if gate.held == 0 then -- of those that are held longer `gate_poll` keeps them
    keep_places(gate)
  end
  return { 'held', number_of(known) or 0, granted }
end
local number = next_number()
redis.call('HSET', gate.row, 'last_number', spell(number))
redis.call('ZADD', gate.line, spell(number), ticket)
redis.call('HSET', gate.tickets, ticket, write_ticket(lease_ms, number))
close_gate(gate)
if gate.waiting == 0 then
  keep_line(gate)
end
return { 'waiting', number, granted }
