-- answer: how many tokens an answer is taken to have, before it comes.

-- Where nothing is known.
local USUAL_OUTPUT_TOKENS = 1024

-- As many as it may, but no more than those of its model have as a rule. Where nobody says how many
-- it may, never more than a quarter of a limit.
local function output_to_expect(most, usual, limits)
  if most > 0 then
    return usual > 0 and math.min(most, usual) or most
  end
  local expected = usual > 0 and usual or USUAL_OUTPUT_TOKENS
  for _, limit in ipairs(limits) do
    if limit.kind == 'tpm' or limit.kind == 'otpm' then
      expected = math.min(expected, math.floor(limit.most / 4))
    end
  end
  return math.max(expected, 1)
end

-- Learns how long answers are as a rule: quickly from a longer one, slowly from shorter ones, so
-- that few are longer.
local function learn_output(endpoints, output)
  local usual = tonumber(redis.call('HGET', endpoints, 'output_tokens'))
  if not (usual and usual > 0 and usual < 2 ^ 53) then
    usual = USUAL_OUTPUT_TOKENS
  end
  usual = usual + (output - usual) / (output > usual and 4 or 100)
  redis.call('HSET', endpoints, 'output_tokens', string.format('%.1f', usual))
end
