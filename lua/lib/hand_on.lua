-- hand_on: free places go to those who stand in line, and those of the dead come back.
--
-- Who is granted a place is told on its replica's channel, and the number of receivers says whether
-- anybody listens there; the calling replica is told by the reply instead. What cannot be told, or
-- is not confirmed in time, goes on to the next in line: the ticket is set aside and keeps its
-- number until its replica polls, or until it is forgotten.
-- @include lib/gate
-- @include lib/lease
-- @include lib/number

local KEPT_ASIDE_MS = 2000 -- two polls: a replica that nobody can reach has died if it sends none
local FROZEN_TTL_MS = '600000'
local MOST_STEPS = 256
local MOST_REAPED = 64

local function set_aside(gate, ticket, for_ms)
  redis.call('ZADD', gate.aside, spell(gate.now + for_ms), ticket)
  redis.call('PEXPIRE', gate.aside, PLACES_TTL_MS)
end

-- Takes back places whose lease ran out, and grants that nobody confirmed: their replica does not
-- move, and all of its tickets are set aside as they come up until it polls. Forgets tickets that
-- have been aside for too long.
local function reap_gate(gate)
  for _, ticket in ipairs(find_due(gate.holders, gate.now, MOST_REAPED)) do
    local text = redis.call('HGET', gate.tickets, ticket)
    redis.call('ZREM', gate.holders, ticket)
    if number_of(text) then
      set_aside(gate, ticket, lease_of(text))
      redis.call('SADD', gate.frozen, string.match(ticket, '^[^.]*'))
      redis.call('PEXPIRE', gate.frozen, FROZEN_TTL_MS)
    else
      redis.call('HDEL', gate.tickets, ticket)
    end
  end
  for _, ticket in ipairs(find_due(gate.aside, gate.now, MOST_REAPED)) do
    redis.call('ZREM', gate.aside, ticket)
    redis.call('HDEL', gate.tickets, ticket)
  end
end

-- Whether somebody has been told of the grant. An error is nobody: the ACL may forbid the channel.
local function is_told(publish, channel, ticket)
  local receivers = redis.pcall(publish, channel, ticket)
  return type(receivers) == 'number' and receivers > 0
end

-- Gives free places to the first in line. Returns the tickets of `own`, the calling replica's, that
-- have got one; `held` and `waiting` are how many then are in the one and in the other.
local function hand_on(gate, own, publish, channels)
  local granted, deaf = {}, {}
  gate.held, gate.waiting = redis.call('ZCARD', gate.holders), redis.call('ZCARD', gate.line)
  local steps = 0
  while gate.held < gate.limit and gate.waiting > 0 and steps < MOST_STEPS do
    steps = steps + 1
    gate.waiting = gate.waiting - 1
    local ticket = redis.call('ZPOPMIN', gate.line)[1]
    local replica = string.match(ticket, '^[^.]*')
    if replica == own then
      granted[#granted + 1] = ticket
    elseif deaf[replica] == nil and redis.call('SISMEMBER', gate.frozen, replica) == 1 then
      deaf[replica] = lease_of(redis.call('HGET', gate.tickets, ticket))
    end
    if replica == own or (not deaf[replica] and is_told(publish, channels .. replica, ticket)) then
      redis.call('ZADD', gate.holders, spell(gate.now + CONFIRM_MS), ticket)
      gate.held = gate.held + 1
    else
      deaf[replica] = deaf[replica] or KEPT_ASIDE_MS
      set_aside(gate, ticket, deaf[replica])
    end
  end
  if steps > 0 then
    redis.call('PEXPIRE', gate.holders, PLACES_TTL_MS)
  end
  return granted
end
