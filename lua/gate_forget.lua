#!lua flags=allow-oom
-- gate_forget: forget a gate that no route leads to any more, with the limit learned there.
--
-- One with somebody in it or in front of it stays: `gate_poll` ends what the dead have left first.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_line     zset  ticket -> number
-- KEYS[4] gate_aside    zset  ticket -> when to forget it, in ms
-- KEYS[5] gate_tickets  hash  ticket -> what is known of it
-- KEYS[6] gate_frozen   set   replicas that have not confirmed a grant
-- RETURNS [status]
--         status "done" | "in_use"

-- bind
local gate, gate_tickets, gate_frozen = KEYS[1], KEYS[5], KEYS[6]

-- read, decide
if redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4]) > 0 then
  return { 'in_use' }
end

-- write
for _, key in ipairs({ gate, gate_tickets, gate_frozen }) do
  redis.call('DEL', key)
end
return { 'done' }
