#!lua
-- queue: an attempt stands in line at a gate, or has left it. In line its prompt is no load to its
-- endpoint yet; its claim stands.
--
-- Repeating it changes nothing. Unknown or ended claims are not an error: the answer is "gone".
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claimed    hash  claim id -> what it holds
-- ARGV[1] claim   string   <replica>.<number>
-- ARGV[2] queued  int      1 in line, 0 no more
-- RETURNS [status]
--         status "done" | "again" | "gone"
-- @include lib/claim

-- bind
local endpoints, claimed, claim = KEYS[1], KEYS[2], ARGV[1]
local queued = ARGV[2] == '1' and '1' or nil

-- read, decide
local standing = redis.call('HGET', claimed, claim)
local held = standing and read_holding(standing)
if not held then
  return { 'gone' }
elseif held.first or held.queued == queued then
  return { 'again' }
end

-- write
local before = prefill_of(held)
held.queued = queued
redis.call('HSET', claimed, claim, write_holding(held))
if queued then
  add_counts(endpoints, before, -1)
else
  add_counts(endpoints, prefill_of(held), 1)
end
return { 'done' }
