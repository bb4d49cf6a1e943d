#!lua
-- note_probe: keep how a probe of an endpoint has ended, beside what becomes of requests.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] outcomes   stream  how attempts have ended
-- ARGV[1] epoch  int
-- ARGV[2] words  string  of lib/outcomes
-- ARGV[3] keep   int     how many outcomes to keep
-- RETURNS [status]
--         status "done" | "fenced"
-- @include lib/fence
-- @include lib/outcomes

if is_fenced(KEYS[1], tonumber(ARGV[1])) then
  return { 'fenced' }
end
note_outcome(KEYS[2], ARGV[2], ARGV[3])
return { 'done' }
