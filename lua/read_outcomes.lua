#!lua
-- read_outcomes: the next outcomes that the coordinator has not read.
--
-- A coordinator that begins reads all from some time on, page by page. After that what it reads is
-- pending until `publish_profile` says that what was learned from it is published; when an answer
-- was lost it asks for what is pending.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] outcomes   stream  how attempts have ended
-- ARGV[1] epoch   int
-- ARGV[2] reader  string  the coordinator's id
-- ARGV[3] from    string  "next" | "pending" | "<id>": those after it, in which case nothing is
--                         pending any more
-- ARGV[4] limit   int     how many at the most
-- RETURNS [status, outcomes]
--         status "done" | "fenced"; outcomes [id, words, ...]
-- @include lib/fence
-- @include lib/outcomes

-- bind
local endpoints, outcomes, epoch = KEYS[1], KEYS[2], tonumber(ARGV[1])
local reader, from, limit = ARGV[2], ARGV[3], math.min(tonumber(ARGV[4]), 1000)

local function read_group(after)
  return redis.pcall('XREADGROUP', 'GROUP', READERS, reader, 'COUNT', limit, 'STREAMS', outcomes,
    after)
end

-- read
if is_fenced(endpoints, epoch) then
  return { 'fenced', {} }
end
if redis.call('EXISTS', outcomes) == 0 then
  return { 'done', {} }
end

-- write: the group notes what has been given out
raise_fence(endpoints, epoch)
local entries
if from ~= 'next' and from ~= 'pending' then
  entries = redis.call('XRANGE', outcomes, '(' .. from, '+', 'COUNT', limit)
  local last = entries[#entries] and entries[#entries][1] or from
  redis.call('XGROUP', 'DESTROY', outcomes, READERS)
  redis.call('XGROUP', 'CREATE', outcomes, READERS, last)
else
  local after = from == 'pending' and '0' or '>'
  local found = read_group(after)
  if found and found.err then -- the group was lost, perhaps with the stream
    redis.call('XGROUP', 'CREATE', outcomes, READERS, '0')
    found = read_group(after)
  end
  entries = found and found[1] and (found[1][2] or found[2]) or {} -- embedded it is less deep
end
local answer = {}
for _, entry in ipairs(entries) do
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = entry[2] and entry[2][2] or '' -- cut off since it was given out
end
return { 'done', answer }
