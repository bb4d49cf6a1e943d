#!lua flags=allow-oom
-- gate_leave: give a place back, or give up waiting for one; a free place goes to the next in line.
--
-- A learned limit falls by one with each 429 and rises by one after so many 200; any other status
-- changes nothing. It never takes a place from who has it. Repeating it changes nothing.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_line     zset  ticket -> number
-- KEYS[4] gate_aside    zset  ticket -> when to forget it, in ms
-- KEYS[5] gate_tickets  hash  ticket -> what is known of it
-- KEYS[6] gate_frozen   set   replicas that have not confirmed a grant
-- ARGV[1] ticket    string   <replica>.<number>
-- ARGV[2] status    int      the upstream's HTTP status, 0 for none
-- ARGV[3] interval  int      how many 200 it takes
-- ARGV[4] limit     int      where none has been learned
-- ARGV[5] most      int      up to which it is learned; 0 where it is not
-- ARGV[6] publish   string   "PUBLISH" | "SPUBLISH"
-- ARGV[7] channels  string   that with a replica's id behind it is the replica's channel
-- RETURNS [status, granted, reason, old_limit, new_limit, in_flight, waiting]
--         status "done" | "gone"; granted "<ticket> ...", the caller's own that have got a place by
--         this; reason "429" | "429_reverted_probe" | "probe" when the limit is another now, or the
--         last rise was in vain, else ""
-- @include lib/gate
-- @include lib/hand_on
-- @include lib/number

-- bind
local gate = { row = KEYS[1], holders = KEYS[2], line = KEYS[3], aside = KEYS[4],
  tickets = KEYS[5], frozen = KEYS[6] }
local ticket, status, interval = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, most, own = tonumber(ARGV[4]), tonumber(ARGV[5]), string.match(ARGV[1], '^([^.]+)%.')

-- Returns why an operator is to be told of a change, "" when there is nothing to tell.
local function learn()
  local successes, old_limit = gate.successes + 1, gate.limit
  if status == 429 then
    gate.limit = math.max(old_limit - 1, 1)
    redis.call('HSET', gate.row, 'limit', spell(gate.limit), 'successes', '0', 'probing', '0')
    return gate.is_probing and '429_reverted_probe' or gate.limit < old_limit and '429' or ''
  elseif successes < interval then
    redis.call('HSET', gate.row, 'successes', spell(successes))
    return ''
  end
  gate.limit = math.min(old_limit + 1, most)
  redis.call('HSET', gate.row, 'limit', spell(gate.limit), 'successes', '0', 'probing', '1')
  return gate.limit > old_limit and 'probe' or ''
end

-- read, write: what frees first, since this must run when the server is out of memory
open_gate(gate, limit, most)
local old_limit, reason = gate.limit, ''
local had_place = redis.call('ZREM', gate.holders, ticket) == 1
local was_there = had_place or leave_line(gate, ticket) > 0
redis.call('HDEL', gate.tickets, ticket)
if had_place and most > 0 and (status == 200 or status == 429) then
  reason = learn()
end
reap_gate(gate)
local granted = table.concat(hand_on(gate, own, ARGV[6], ARGV[7]), ' ')
close_gate(gate)
return { was_there and 'done' or 'gone', granted, reason, old_limit, gate.limit, gate.held,
  gate.waiting }
