#!lua flags=no-writes
-- explain: what `admit` would answer now, and how every endpoint stands. Writes nothing.
--
-- It decides as `admit` does, by the same code, as though expired claims had been reaped.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] claims     zset    claim id -> lease deadline in ms
-- KEYS[3] claimed    hash    claim id -> what it holds
-- KEYS[4] epoch      string  number of the run-time overrides
-- KEYS[5] pin        string  the caller's pin
-- KEYS[6] hint       hash    location -> what it has cached of the caller's prompts
-- ARGV[1] epoch           int     these are `admit`'s
-- ARGV[2] candidates      string
-- ARGV[3] tried           string
-- ARGV[4] order           string
-- ARGV[5] draws           string
-- ARGV[6] rules           string
-- ARGV[7] caller          string
-- ARGV[8] prompt_tokens   int
-- ARGV[9] fingerprint     string
-- ARGV[10] output_tokens  int
-- ARGV[11] offers         string
-- ARGV[12] replica        string  whose request it would be
-- ARGV[13] supposed       int     attempts of the same request that the budget of failover is to
--                                 take for made
-- ARGV[14] limited        string  "<location>|<limits> ..." (see lib/limit) of the endpoints whose
--                                 limits are to be told, candidates or not
-- RETURNS [status, location, probe, drawn, retry_after_ms, reasons, pin, tokens, scores, shares,
--          costs, fields, limits, cooldowns, retries]
--         status "admitted" | "refused" | "short" | "stale"
--         reasons "<location>=<reason> ..." of all passed over or unfit; pin "kept" | "made" | ""
--         scores "<location>=<ms> ..." where endpoints are compared: the least is the best
--         shares "<location>=<share> ..." and costs "<location>=<usd> ..." where they are mixed
--         fields [field, value, ...] of endpoints
--         limits, cooldowns [row, ...] and retries: as of lib/standing
-- @include lib/number
-- @include lib/clock
-- @include lib/claim
-- @include lib/lease
-- @include lib/ask
-- @include lib/decide
-- @include lib/retry
-- @include lib/standing

-- bind
local endpoints, claims, claimed = KEYS[1], KEYS[2], KEYS[3]

-- What the next `reap_due` of that many will give back, without doing it. Returns field -> count,
-- and claim -> true of those that it will end.
local function due_back(now, limit)
  local back, ended = {}, {}
  for _, claim in ipairs(find_due(claims, now, limit)) do
    local text = redis.call('HGET', claimed, claim)
    local held = text and read_holding(text)
    if held then
      ended[claim] = true
      for name, count in pairs(counts_of(held)) do
        back[name] = (back[name] or 0) + count
      end
    end
  end
  return back, ended
end

-- The tally of attempts, as though so many of one request had been made just now.
local function suppose(text, attempts, now)
  if attempts == 0 then
    return text
  end
  local counted = read_retries(text, now)
  counted.admits = counted.admits + 1
  counted.retries = counted.retries + attempts - 1
  return write_retries(counted)
end

-- epoch
local stored = redis.call('MGET', KEYS[4], KEYS[5])
if whole(stored[1]) ~= tonumber(ARGV[1]) then
  return { 'stale', '', 0, 0, 0, '', '', 0, '', '', '', {}, {}, {}, '' }
end

-- decide
local now = model_clock(endpoints)
local fields = redis.call('HGETALL', endpoints)
local seen = by_name(fields)
local tally = suppose(seen.retries, tonumber(ARGV[13]), now)
local ask = read_ask(ARGV, endpoints, now, ARGV[12], stored[2], KEYS[6])
ask.usual_output = seen.output_tokens
ask.given_back, ask.ended = due_back(now, 4)
local may = may_try(ask, tally)
local found = may and decide(ask) or refuse_all(ask, 'retry_budget')
if found.is_short then
  return { 'short', '', 0, found.drawn, 0, '', '', 0, '', '', '', {}, {}, {}, '' }
end
for index = 1, may and #ask.locations or 0 do -- the draw had no need to look at all
  row_of(ask, found, index)
end
local scores, shares, costs = {}, {}, {}
for index, location in ipairs(found.scores and ask.locations or {}) do
  local score, share = found.scores[index], found.shares and found.shares[index]
  scores[#scores + 1] = score and string.format('%s=%.0f', location, score * 1000)
  shares[#shares + 1] = share and string.format('%s=%.17g', location, share)
  local cost = found.costs and found.costs[index]
  costs[#costs + 1] = cost and string.format('%s=%.17g', location, cost)
end
local reasons = reasons_of(ask, found)

-- tell
for name, count in pairs(ask.given_back) do
  seen[name] = whole(seen[name]) - count
end
local limits = limits_now(seen, ARGV[14], now, ask.window_ms)
local cooldowns = cooldowns_now(seen, now)
local retries = retries_now(tally, now, ask.retry_percent, ask.retry_floor)
if not found.location then
  return { 'refused', '', 0, found.drawn, found.soonest_ms, reasons, '', 0, '', '',
    '', fields, limits, cooldowns, retries }
end
return { 'admitted', found.location, found.row.takes_probe and 1 or 0, found.drawn, 0, reasons,
  ask.uses_pin and found.pin or '', found.tokens or 0, table.concat(scores, ' '),
  table.concat(shares, ' '), table.concat(costs, ' '), fields, limits, cooldowns, retries }
