-- conn: connect failures that may be the reporting replica's own fault.
--
-- The field `<location>:conn` packs `<replica>:<count>:<last_ms>` words: failures noted but not
-- yet counted. One replica with a broken network must not open a circuit for all, so they count
-- once a second replica reports one too, or when the reporter is the only live replica.
-- @include lib/number

local MOST_NOTED = 1000

local function read_conn(text)
  local notes = {}
  for replica, count, last_ms in string.gmatch(text or '', '([^%s:]+):(%d+):(%d+)') do
    notes[#notes + 1] =
      { replica = replica, count = math.min(whole(count), MOST_NOTED), last_ms = whole(last_ms) }
  end
  return notes
end

-- For how many ms the replica keeps off the endpoint, 0 when it need not.
local function blocked_here_ms(text, replica, now, policy)
  if not text then
    return 0
  end
  for _, note in ipairs(read_conn(text)) do
    if note.replica == replica and note.count >= policy.failure_threshold then
      local left = note.last_ms + policy.cooldown_ms - now
      return (left > 0 and left <= policy.cooldown_ms) and left or 0
    end
  end
  return 0
end
