-- limit: what an endpoint may serve in a stretch of time, and what is taken of that.
--
-- Packed, `|<kind>=<limit>,...`; kinds are rpm, tpm, itpm, otpm and parallel, and limits are spelt
-- as in lib/scopes. Windows are fields `<location>:<kind>`; what is under way in parallel is
-- `inflight`. What a claim has taken is `<kind>,...:<input>:<output>:<at_ms>`, tokens and when.
-- @include lib/answer
-- @include lib/number
-- @include lib/window

-- In which a place may come back.
local PLACE_MS = 1000

local function read_endpoint_limits(packed)
  local limits = {}
  for kind, most, fixed, shadow in string.gmatch(packed, '(%l+)=(%d+)(f?)(s?)') do
    limits[#limits + 1] = { kind = kind, most = tonumber(most), is_fixed = fixed ~= '',
      is_shadow = shadow ~= '', need = 0, text = false, refuses = false, head = false, sum = 0,
      first = 0, rest = 0 }
  end
  return limits
end

-- Adds the names of the fields that tell what is taken of limits.
local function add_names(names, location, limits)
  local count = #names
  for i, limit in ipairs(limits) do
    names[count + i] = location .. ':' .. (limit.kind == 'parallel' and 'inflight' or limit.kind)
  end
end

-- By how much a request goes beyond a limit, and in how many ms it may fit, `math.huge` for never.
-- What was taken when the window was written is no less than by now: mostly that will do.
local function excess_over(ask, limit)
  local text = limit.text
  if limit.kind == 'parallel' then
    return whole(text) + limit.need - limit.most, PLACE_MS
  end
  limit.head, limit.sum, limit.first, limit.rest = read_sliding(text)
  local sum = limit.sum or string.match(text or '', '^fixed %d+ %d+ (%d+)')
  local excess = whole(sum) + limit.need - limit.most
  if excess <= 0 then
    return excess, 0
  end
  local window = open_window(text, ask.now, ask.window_ms, limit.is_fixed)
  excess = window.sum + limit.need - limit.most
  if excess > 0 and limit.need > limit.most then
    return excess, math.huge
  end
  return excess, excess > 0 and frees_in_ms(window, excess, ask.now) or 0
end

-- Puts into each limit what the request needs of it, and whether that is too much. Returns nil when
-- there is room, else the reason and in how many ms there may be, 0 for never: of the limit that
-- keeps the request waiting longest.
local function judge_limits(ask, limits)
  local reason, longest_ms = nil, 0
  local input = ask.input_tokens
  local output = output_to_expect(ask.output_tokens, whole(ask.usual_output), limits)
  local needs = { rpm = 1, tpm = input + output, itpm = input, otpm = output, parallel = 1 }
  for _, limit in ipairs(limits) do
    limit.need = needs[limit.kind]
    local excess, in_ms = excess_over(ask, limit)
    limit.refuses = excess > 0
    if limit.refuses and not limit.is_shadow and (not reason or in_ms > longest_ms) then
      reason, longest_ms = limit.kind .. '_limit', in_ms
    end
  end
  limits.input, limits.output = input, output
  return reason, longest_ms < math.huge and longest_ms or 0
end

-- Takes what the request needs from a limit's window, and writes that again.
local function take_from(ask, limit, head)
  if limit.head == head and not limit.is_fixed then
    return string.format('%s%d %d', head, whole(limit.sum) + limit.need,
      whole(limit.first) + limit.need) .. string.sub(limit.text, limit.rest)
  end
  local window = open_window(limit.text, ask.now, ask.window_ms, limit.is_fixed)
  take(window, limit.need, ask.now)
  return write_window(window)
end

-- Takes what the request needs of every limit, and counts what shadows would have refused: `set`
-- writes a field of the location. Returns what it has taken, nil when that is nothing.
local function take_limits(ask, at, limits, set)
  local kinds, head = {}, sliding_now(ask.now, ask.window_ms)
  for _, limit in ipairs(limits) do
    if limit.refuses then -- the shadow of a refusal
      local counter = ':would_refuse_' .. limit.kind
      set(counter, spell(whole(redis.call('HGET', ask.endpoints, at .. counter)) + 1))
    elseif limit.kind ~= 'parallel' then
      set(':' .. limit.kind, take_from(ask, limit, head))
      kinds[#kinds + 1] = limit.kind
    end
  end
  return #kinds > 0 and string.format('%s:%d:%d:%d', table.concat(kinds, ','), limits.input,
    limits.output, ask.now)
end
