#!lua flags=no-writes
-- explain: what `admit` would answer now, and what every candidate's row holds. Writes nothing.
--
-- It decides as `admit` does, by the same code, as though expired claims had been reaped.
--
-- KEYS[1] endpoints  hash    <location>:<what>
-- KEYS[2] claims     zset    claim id -> lease deadline in ms
-- KEYS[3] claimed    hash    claim id -> what it holds
-- KEYS[4] epoch      string  number of the run-time overrides
-- KEYS[5] pin        string  the caller's pin
-- KEYS[6] hint       hash    location -> what it has cached of the caller's prompts
-- ARGV[1] epoch               int      these are `admit`'s
-- ARGV[2] candidates          string
-- ARGV[3] tried               string
-- ARGV[4] order               string
-- ARGV[5] draws               string
-- ARGV[6] failure_threshold   int
-- ARGV[7] cooldown_ms         int
-- ARGV[8] caller              string
-- ARGV[9] affinity            int
-- ARGV[10] pin_max_age_ms     int
-- ARGV[11] prefill            int
-- ARGV[12] prompt_tokens      int
-- ARGV[13] fingerprint        string
-- ARGV[14] intervene_tokens   int
-- ARGV[15] elephant_tokens    int
-- ARGV[16] elephant_limit     int
-- ARGV[17] affinity_ceiling   int
-- ARGV[18] hint_ttl_ms        int
-- ARGV[19] prefill_rate       int
-- ARGV[20] replica            string   whose request it would be
-- RETURNS [status, location, probe, drawn, retry_after_ms, reasons, pin, tokens, scores, fields]
--         status "admitted" | "refused" | "short" | "stale"
--         reasons "<location>=<reason> ..." of all passed over or unfit; pin "kept" | "made" | ""
--         scores "<location>=<ms> ..." where endpoints are compared: the least is the best
--         fields [field, value, ...] of endpoints
-- @include lib/number
-- @include lib/clock
-- @include lib/claim
-- @include lib/lease
-- @include lib/ask
-- @include lib/decide

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

-- epoch
local stored = redis.call('MGET', KEYS[4], KEYS[5])
if whole(stored[1]) ~= tonumber(ARGV[1]) then
  return { 'stale', '', 0, 0, 0, '', '', 0, '', {} }
end

-- decide
local now = model_clock(endpoints)
local ask = read_ask(ARGV, endpoints, now, ARGV[20], stored[2], KEYS[6])
ask.given_back, ask.ended = due_back(now, 4)
local found = decide(ask)
if found.is_short then
  return { 'short', '', 0, found.drawn, 0, '', '', 0, '', {} }
end
for index = 1, #ask.locations do -- the draw had no need to look at all
  row_of(ask, found, index)
end
local scores = {}
for index, location in ipairs(found.scores and ask.locations or {}) do
  local score = found.scores[index]
  scores[#scores + 1] = score and string.format('%s=%.0f', location, score * 1000)
end
local reasons, fields = reasons_of(ask, found), redis.call('HGETALL', endpoints)
if not found.location then
  return { 'refused', '', 0, found.drawn, found.soonest_ms, reasons, '', 0, '', fields }
end
return { 'admitted', found.location, found.row.takes_probe and 1 or 0, found.drawn, 0, reasons,
  ask.uses_pin and found.pin or '', found.tokens or 0, table.concat(scores, ' '), fields }
