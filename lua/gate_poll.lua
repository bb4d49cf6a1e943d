#!lua flags=allow-oom
-- gate_poll: a replica lives and still waits and holds: renew its places, tell it of grants that it
-- has missed, put back what was lost or set aside.
--
-- Places that the store does not know are in use all the same, and are taken again, over the limit
-- if need be. Tickets set aside go back to where their numbers stand. Without a replica it only
-- takes back the places of the dead.
--
-- KEYS[1] gate          hash  the limit and what it is learned from
-- KEYS[2] gate_holders  zset  ticket -> lease deadline in ms
-- KEYS[3] gate_line     zset  ticket -> number
-- KEYS[4] gate_aside    zset  ticket -> when to forget it, in ms
-- KEYS[5] gate_tickets  hash  ticket -> what is known of it
-- KEYS[6] gate_frozen   set   replicas that have not confirmed a grant
-- ARGV[1] replica   string   "" for nobody
-- ARGV[2] waiting   string   "<ticket> ...", at most 128
-- ARGV[3] held      string   "<ticket> ...", at most 128
-- ARGV[4] lease_ms  int
-- ARGV[5] limit     int      where none has been learned
-- ARGV[6] most      int      up to which it is learned; 0 where it is not
-- ARGV[7] publish   string   "PUBLISH" | "SPUBLISH"
-- ARGV[8] channels  string   that with a replica's id behind it is the replica's channel
-- RETURNS [status, granted, unknown, restored]
--         status "done"; granted "<ticket> ..." of those that wait, to be confirmed; unknown
--         "<ticket> ..." of those that wait; restored how many places were not known
-- @include lib/gate
-- @include lib/hand_on
-- @include lib/lease
-- @include lib/number

-- bind
local gate = { row = KEYS[1], holders = KEYS[2], line = KEYS[3], aside = KEYS[4],
  tickets = KEYS[5], frozen = KEYS[6] }
local replica, lease_ms = ARGV[1], tonumber(ARGV[4])
local limit, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local MOST_RECALLED = 128

-- Returns the ids in a text, and what is known of each; false of those that are not known.
local function look_up(ids)
  local found = {}
  for id in string.gmatch(ids, '%S+') do
    found[#found + 1] = id
  end
  return found, #found > 0 and redis.call('HMGET', gate.tickets, unpack(found)) or {}
end

local function scores(key, ids)
  return #ids > 0 and redis.call('ZMSCORE', key, unpack(ids)) or {}
end

-- read, write: TTLs first, since servers before 7 let a script go on once it has written something
keep_places(gate)
keep_line(gate)
open_gate(gate, limit, most)
if replica ~= '' then
  redis.call('SREM', gate.frozen, replica)
end

local holding, texts = look_up(ARGV[3])
local restored = 0
for i, ticket in ipairs(holding) do
  if not texts[i] or number_of(texts[i]) then
    leave_line(gate, ticket)
  end
  restored = restored + hold_place(gate, ticket, lease_ms)
end

local waiting, granted, unknown = {}, {}, {}
waiting, texts = look_up(ARGV[2])
local holders, line = scores(gate.holders, waiting), scores(gate.line, waiting)
for i, ticket in ipairs(waiting) do
  local number = number_of(texts[i])
  if holders[i] then
    if number then -- from now on it has been told
      redis.call('ZADD', gate.holders, spell(gate.now + CONFIRM_MS), ticket)
    end
    granted[#granted + 1] = ticket
  elseif number and not line[i] then
    redis.call('ZREM', gate.aside, ticket)
    redis.call('ZADD', gate.line, spell(number), ticket)
  elseif not number then
    unknown[#unknown + 1] = ticket
  end
end

reap_gate(gate)
recall_far(gate.holders, gate.tickets, gate.now, MOST_RECALLED)
recall_far(gate.aside, gate.tickets, gate.now, MOST_RECALLED)
for _, ticket in ipairs(hand_on(gate, replica, ARGV[7], ARGV[8])) do
  granted[#granted + 1] = ticket
end
if replica ~= '' then
  close_gate(gate)
end
return { 'done', table.concat(granted, ' '), table.concat(unknown, ' '), restored }
