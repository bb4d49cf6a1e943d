-- prompt: what is remembered of a prompt that an endpoint has come to cache (see hint).
-- @include lib/number

local function read_prompt(tokens, fingerprint, anchor, ttl_ms)
  return {
    tokens = tonumber(tokens),
    fingerprint = fingerprint,
    anchor = anchor,
    ttl_ms = ttl_ms,
  }
end

-- Notes a prefill that has come to its first output; without tokens there is nothing to note. A
-- key that somebody has made something else of is left so, until it dies like any other.
local function confirm_hint(endpoints, key, location, prompt, now)
  if prompt.tokens <= 0 then
    return
  end
  local generation = whole(redis.call('HGET', endpoints, location .. ':generation'))
  local text = string.format('tokens=%d until_ms=%d generation=%d fingerprint=%s anchor=%s',
    prompt.tokens, now + prompt.ttl_ms, generation, prompt.fingerprint, prompt.anchor)
  redis.pcall('HSET', key, location, text)
  redis.call('PEXPIRE', key, spell(prompt.ttl_ms))
end
