#!lua flags=no-writes
-- gate_state: read how full a gate is, and what its limit is.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_line     zset  ticket -> number
-- KEYS[4] gate_aside    zset  ticket -> when to forget it, in ms
-- ARGV[1] limit  int   where none has been learned
-- ARGV[2] most   int   up to which it is learned; 0 where it is not
-- RETURNS [status, limit, in_flight, waiting, aside, successes, probing]
--         status "done"; aside: waiting, but their replica is not heard of
-- @include lib/gate

-- bind
local gate = { row = KEYS[1], holders = KEYS[2], line = KEYS[3], aside = KEYS[4] }

-- read
open_gate(gate, tonumber(ARGV[1]), tonumber(ARGV[2]))
return { 'done', gate.limit, redis.call('ZCARD', gate.holders), redis.call('ZCARD', gate.line),
  redis.call('ZCARD', gate.aside), gate.successes, gate.is_probing and 1 or 0 }
