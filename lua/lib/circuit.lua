-- circuit: whether an endpoint's failures keep requests away. An absent field is healthy.
-- @include lib/number

-- Judges a row {circuit, opened_at_ms, probe, probe_until_ms}. Returns nil when the endpoint may
-- be used, else the reason and in how many ms that can change; third, whether using it takes the
-- half-open probe. A deadline further away than the cooldown is void.
local function judge_circuit(row, now, cooldown_ms)
  if row.circuit == 'open' then
    local left = whole(row.opened_at_ms) + cooldown_ms - now
    if left > 0 and left <= cooldown_ms then
      return 'circuit_open', left, false
    end
    return nil, 0, true
  end
  if row.circuit == 'half_open' then
    local left = whole(row.probe_until_ms) - now
    if row.probe and left > 0 and left <= cooldown_ms then
      return 'probe_in_flight', left, false
    end
    return nil, 0, true
  end
  return nil, 0, false
end
