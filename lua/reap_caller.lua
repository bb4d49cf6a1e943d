#!lua flags=allow-oom
-- reap_caller: end the expired reservations under one tag, with or without traffic on it.
--
-- Bounded per call; the caller comes again. Also recalls deadlines that the clock has made void.
--
-- KEYS[1] limits        hash  <scope>:<what>
-- KEYS[2] reservations  zset  reservation id -> lease deadline in ms
-- KEYS[3] reserved      hash  reservation id -> what it holds
-- KEYS[4] lapsed        zset  id of an expired reservation -> when to forget it, in ms
-- ARGV[1] limit  int   at most this many are ended, and never more than 1000
-- RETURNS [status, ended]
--         status "done"; ended how many were
-- @include lib/clock
-- @include lib/lease
-- @include lib/reservation
-- @include lib/tombstone

-- bind
local limits, reservations, reserved, lapsed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = math.min(tonumber(ARGV[1]), 1000)

-- read, write
local now = model_clock(limits)
local ended = reap_reservations(limits, reservations, reserved, lapsed, now, limit)
recall_far(reservations, reserved, now, limit)
forget_tombstones(lapsed, now, limit)
return { 'done', ended }
