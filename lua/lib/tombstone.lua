-- tombstone: what is left of a claim that was reaped, so that a late settle still counts, once.
--
-- A member is the claim's id, or `<id> first` when its success had been counted by then; its score
-- is when to forget it.
-- @include lib/number

local TOMBSTONE_MS = 600 * 1000

local function bury(reaped, claim, first, now)
  redis.call('ZADD', reaped, now + TOMBSTONE_MS, first and claim .. ' first' or claim)
  redis.call('PEXPIRE', reaped, TOMBSTONE_MS)
end

-- Returns whether the claim was reaped less than ten minutes ago, and whether its success counted.
local function find_tombstone(reaped, claim, now)
  for _, first in ipairs({ false, true }) do
    local until_ms = tonumber(redis.call('ZSCORE', reaped, first and claim .. ' first' or claim))
    if until_ms and until_ms > now and until_ms <= now + TOMBSTONE_MS then
      return true, first
    end
  end
  return false, false
end

local function remove_tombstone(reaped, claim)
  redis.call('ZREM', reaped, claim, claim .. ' first')
end

-- Forgets those that no settle can ask for any more, and those that a clock set back has made void.
local function forget_tombstones(reaped, now, limit)
  local too_far = '(' .. spell(now + TOMBSTONE_MS)
  for _, range in ipairs({ { '-inf', spell(now) }, { too_far, '+inf' } }) do
    local void = redis.call('ZRANGEBYSCORE', reaped, range[1], range[2], 'LIMIT', 0, limit)
    if #void > 0 then
      redis.call('ZREM', reaped, unpack(void))
    end
  end
end
