#!lua flags=allow-oom
-- reap: end the expired claims of a model, with or without traffic on it.
--
-- Bounded per call; the caller comes again. Also recalls deadlines that the clock has made void.
--
-- KEYS[1] endpoints  hash  <location>:<what>
-- KEYS[2] claims     zset  claim id -> lease deadline in ms
-- KEYS[3] claimed    hash  claim id -> what it holds
-- KEYS[4] reaped     zset  id of an expired claim -> when to forget it, in ms
-- ARGV[1] limit  int   at most this many claims are ended, and never more than 1000
-- RETURNS [status, ended]
--         status "done"; ended how many claims were
-- @include lib/clock
-- @include lib/lease
-- @include lib/reap
-- @include lib/tombstone

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = math.min(tonumber(ARGV[1]), 1000)

-- read, write
local now = model_clock(endpoints)
local ended = reap_due(endpoints, claims, claimed, reaped, now, limit)
recall_far(claims, claimed, now, limit)
forget_tombstones(reaped, now, limit)
return { 'done', ended }
