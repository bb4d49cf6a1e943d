-- claim: what a claim holds, and how exactly that is undone.
--
-- A holding is text, `name=value` words with a space between, such as
-- `location=local-8000 lease_ms=15000 epoch=3 probe=1 tokens=52000 elephant=1 caller=1f0c9b2a`. Its
-- prefill (tokens, elephant, caller) ends at the first output, and counts for nothing while it
-- stands in line at a gate (queued); what it has taken of limits (taken)
-- stays taken, unless its settlement corrects that. A release that meets a word it does
-- not know cannot undo the claim and leaves it to a newer one (see reap).
-- @include lib/number

local WORDS =
  { 'location', 'lease_ms', 'epoch', 'probe', 'first', 'queued', 'tokens', 'elephant', 'caller',
    'taken' }
local KNOWN = { location = true, lease_ms = true, epoch = true, probe = true, first = true,
  queued = true, tokens = true, elephant = true, caller = true, taken = true }

-- 7 and 8 days: claims outlive the counts that they undo, or these would stay for good.
local ENDPOINTS_TTL_MS = '604800000'
local CLAIMS_TTL_MS = '691200000'

local function write_holding(held)
  local words = {}
  for _, name in ipairs(WORDS) do
    if held[name] then
      words[#words + 1] = name .. '=' .. held[name]
    end
  end
  return table.concat(words, ' ')
end

-- Returns the holding as a table, or nil when this release cannot read all of it.
local function read_holding(text)
  local held = {}
  for name, value in string.gmatch(text, '([^%s=]+)=(%S+)') do
    if not KNOWN[name] then
      return nil
    end
    held[name] = value
  end
  if not held.location then
    return nil
  end
  return held
end

-- The replica that made a claim: claim ids are `<replica>.<number>`.
local function replica_of(claim)
  return string.match(claim, '^[^.]+') or claim
end

-- Every key of a model outlives its last use by its TTL; rules never depend on that.
local function keep_claims(endpoints, claims, claimed)
  redis.call('PEXPIRE', endpoints, ENDPOINTS_TTL_MS)
  redis.call('PEXPIRE', claims, CLAIMS_TTL_MS)
  redis.call('PEXPIRE', claimed, CLAIMS_TTL_MS)
end

-- What a holding's prefill counts for at its endpoint, by field.
local function prefill_of(held)
  local at, counts = held.location, {}
  if held.queued then
    return counts
  end
  if held.tokens then
    counts[at .. ':prefill_tokens'] = whole(held.tokens)
  end
  if held.tokens and held.caller then
    counts[at .. ':own:' .. held.caller] = whole(held.tokens)
  end
  if held.elephant then
    counts[at .. ':elephants'] = 1
  end
  return counts
end

-- All that a holding counts for: its prefill, and its place in flight.
local function counts_of(held)
  local counts = prefill_of(held)
  counts[held.location .. ':inflight'] = 1
  return counts
end

-- Adds counts to those that stand (sign 1), or takes them away (-1). None goes below zero, and zero
-- is an absent field: the healthy default.
local function add_counts(endpoints, counts, sign)
  local names, set, gone = {}, {}, {}
  for name in pairs(counts) do
    names[#names + 1] = name
  end
  if #names == 0 then
    return
  end
  for i, text in ipairs(redis.call('HMGET', endpoints, unpack(names))) do
    local count = whole(text) + sign * counts[names[i]]
    if count > 0 then
      set[#set + 1] = names[i]
      set[#set + 1] = spell(count)
    else
      gone[#gone + 1] = names[i]
    end
  end
  if #gone > 0 then
    redis.call('HDEL', endpoints, unpack(gone))
  end
  if #set > 0 then
    redis.call('HSET', endpoints, unpack(set))
  end
end

-- Gives back what the claim holds. A probe is freed only by the claim that holds it.
local function release(endpoints, claims, claimed, claim, held)
  redis.call('ZREM', claims, claim)
  redis.call('HDEL', claimed, claim)
  add_counts(endpoints, counts_of(held), -1)
  local at = held.location
  if held.probe and redis.call('HGET', endpoints, at .. ':probe') == claim then
    redis.call('HDEL', endpoints, at .. ':probe', at .. ':probe_until_ms')
  end
end
