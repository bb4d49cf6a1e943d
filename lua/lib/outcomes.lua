-- outcomes: a stream of how attempts have ended, for the coordinator to learn from.
--
-- An entry has one field, `end`, of words: `at=<location> how=ok|error ttft_ms=<int>
-- prompt=<tokens> output=<tokens>`, and `by=probe` where it was no request of a client's. What is
-- not known is 0.

-- The group of those who read it. It has one member at a time, whoever coordinates.
local READERS = 'calibration'
local OUTCOMES_TTL_MS = '691200000' -- 8 days

-- Appends how an attempt has ended, and has the stream keep about so many.
local function note_outcome(outcomes, words, keep)
  redis.call('XADD', outcomes, 'MAXLEN', '~', keep, '*', 'end', words)
  redis.call('PEXPIRE', outcomes, OUTCOMES_TTL_MS)
end
