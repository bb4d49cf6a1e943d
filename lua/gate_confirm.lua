#!lua flags=allow-oom
-- gate_confirm: a replica has heard of its ticket's grant, and takes the place.
--
-- Only then may it be used: a grant that was not confirmed in time has gone on. Repeating it
-- changes nothing.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_tickets  hash  ticket -> what is known of it
-- ARGV[1] ticket    string   <replica>.<number>
-- ARGV[2] lease_ms  int
-- RETURNS [status, number]
--         status "held" | "waiting" | "gone"; number in line, 0 when it is not known any more
-- @include lib/clock
-- @include lib/gate

-- bind
local gate = { row = KEYS[1], holders = KEYS[2], tickets = KEYS[3] }
local ticket, lease_ms = ARGV[1], tonumber(ARGV[2])

-- read
local known = redis.call('HGET', gate.tickets, ticket)
local number = number_of(known)
if not redis.call('ZSCORE', gate.holders, ticket) then
  return { number and 'waiting' or 'gone', number or 0 }
end

-- write: TTLs first, since servers before 7 let a script go on once it has written something
keep_places(gate)
gate.now = model_clock(gate.row)
hold_place(gate, ticket, lease_ms)
return { 'held', number or 0 }
