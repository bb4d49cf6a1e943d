#!lua flags=allow-oom
-- tidy_model: forget what no replica forgets: endpoints that are no longer configured, what dead
-- replicas have noted, and all of a model that nobody serves any more.
--
-- What still has claims stays until these have ended, by their holder's word or with their lease.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] claims     zset    claim id -> lease deadline in ms
-- KEYS[3] claimed    hash    claim id -> what it holds
-- KEYS[4] reaped     zset    id of an expired claim -> when to forget it, in ms
-- KEYS[5] outcomes   stream  how attempts have ended
-- KEYS[6] profile    string  what was learned from that
-- ARGV[1] epoch      int
-- ARGV[2] locations  string  "<location> ..." that are configured; "*" when that is not known
--                            for sure; "" when the model is not
-- ARGV[3] replicas   string  "<replica> ..." that live, the coordinator among them
-- ARGV[4] limit      int     at most this many claims are ended, and never more than 1000
-- RETURNS [status, ended, forgotten]
--         status "done" | "fenced"; ended how many claims, forgotten how many fields
-- @include lib/clock
-- @include lib/conn
-- @include lib/connect_failure
-- @include lib/fence
-- @include lib/lease
-- @include lib/number
-- @include lib/reap
-- @include lib/tombstone

-- bind
local endpoints, claims, claimed, reaped = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local outcomes, profile = KEYS[5], KEYS[6]
local epoch, limit = tonumber(ARGV[1]), math.min(tonumber(ARGV[4]), 1000)
local PER_CALL = 1000

-- A location without the name of its host: an engine beside a replica is another one on each.
local function engine_of(location)
  return string.match(location, '^[^@]+') or location
end

local configured, live = {}, {}
for location in string.gmatch(ARGV[2], '%S+') do
  configured[engine_of(location)] = true
end
for replica in string.gmatch(ARGV[3], '%S+') do
  live[replica] = true
end

-- read
local now = model_clock(endpoints)
if is_fenced(endpoints, epoch) then
  return { 'fenced', 0, 0 }
end

-- claims
local ended = reap_due(endpoints, claims, claimed, reaped, now, limit)
recall_far(claims, claimed, now, limit)
forget_tombstones(reaped, now, limit)
local fields = redis.call('HGETALL', endpoints)
if ARGV[2] == '' and redis.call('ZCARD', claims) + redis.call('HLEN', claimed) == 0 then
  for _, key in ipairs({ endpoints, claims, claimed, reaped, outcomes, profile }) do
    redis.call('DEL', key)
  end
  return { 'done', ended, #fields / 2 }
end

-- endpoints
local values, gone = {}, {}
for i = 1, #fields, 2 do
  values[fields[i]] = fields[i + 1]
end
for name, value in pairs(values) do
  local location, what = string.match(name, '^([^:]+):(.+)$')
  if location and not configured['*'] and not configured[engine_of(location)] then
    if whole(values[location .. ':inflight']) == 0 then
      gone[#gone + 1] = name
    end
  elseif what == 'conn' then
    local notes, kept = read_conn(value), {}
    for _, note in ipairs(notes) do
      if live[note.replica] or math.abs(now - note.last_ms) <= CONFIRM_WITHIN_MS then
        kept[#kept + 1] = note
      end
    end
    if #kept < #notes then
      write_conn(endpoints, location, kept)
    end
  end
end
for first = 1, #gone, PER_CALL do
  redis.call('HDEL', endpoints, unpack(gone, first, math.min(first + PER_CALL - 1, #gone)))
end
raise_fence(endpoints, epoch)
return { 'done', ended, #gone }
