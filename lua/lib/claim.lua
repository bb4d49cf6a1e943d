-- claim: what a claim holds, and how exactly that is undone.
--
-- A holding is text, `name=value` words with a space between, such as
-- `location=local-8000 lease_ms=15000 probe=1`. A release that meets a word it does not know
-- cannot undo the claim and leaves it to a newer one (see reap).
-- @include lib/number

local HOLDS = { location = true, lease_ms = true, probe = true, first = true }

-- Claims outlive the counts that they undo: a count whose claim had gone would stay for good.
local ENDPOINTS_TTL_MS = 7 * 24 * 3600 * 1000
local CLAIMS_TTL_MS = 8 * 24 * 3600 * 1000
local DEFAULT_LEASE_MS = 15000

local function write_holding(held)
  local words = { 'location=' .. held.location }
  for _, name in ipairs({ 'lease_ms', 'probe', 'first' }) do
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
    if not HOLDS[name] then
      return nil
    end
    held[name] = value
  end
  if not held.location then
    return nil
  end
  return held
end

-- The lease that a holding names, whoever wrote it.
local function lease_of(text)
  local lease_ms = whole(string.match(text or '', 'lease_ms=(%d+)'))
  return lease_ms > 0 and lease_ms or DEFAULT_LEASE_MS
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

-- Gives back what the claim holds. A count edited by hand never goes below zero, and a probe is
-- freed only by the claim that holds it.
local function release(endpoints, claims, claimed, claim, held)
  redis.call('ZREM', claims, claim)
  redis.call('HDEL', claimed, claim)
  local at = held.location
  local row = redis.call('HMGET', endpoints, at .. ':inflight', at .. ':probe')
  local left = whole(row[1]) - 1
  if left > 0 then
    redis.call('HSET', endpoints, at .. ':inflight', left)
  else
    redis.call('HDEL', endpoints, at .. ':inflight')
  end
  if row[2] == claim then
    redis.call('HDEL', endpoints, at .. ':probe', at .. ':probe_until_ms')
  end
end
