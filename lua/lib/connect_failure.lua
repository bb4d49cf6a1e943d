-- connect_failure: connect failures, noted until a second replica confirms them (see conn).
-- @include lib/conn

local CONFIRM_WITHIN_MS = 60000

local function write_conn(endpoints, at, notes)
  local words = {}
  for _, note in ipairs(notes) do
    words[#words + 1] = string.format('%s:%d:%.0f', note.replica, note.count, note.last_ms)
  end
  if #words > 0 then
    redis.call('HSET', endpoints, at .. ':conn', table.concat(words, ' '))
  else
    redis.call('HDEL', endpoints, at .. ':conn')
  end
end

-- Notes one connect failure. Returns how many failures count now: none while unconfirmed, else all
-- that were noted. Counted notes stay with count 0, so that they confirm what follows.
local function note_connect_failure(endpoints, at, replica, now, live_replicas, policy)
  local keep_ms = math.max(CONFIRM_WITHIN_MS, policy.cooldown_ms)
  local kept, mine, confirmed = {}, nil, live_replicas <= 1
  for _, note in ipairs(read_conn(redis.call('HGET', endpoints, at .. ':conn'))) do
    local age = math.abs(now - note.last_ms)
    if age <= keep_ms then
      kept[#kept + 1] = note
      if note.replica == replica then
        mine = note
      elseif age <= CONFIRM_WITHIN_MS then
        confirmed = true
      end
    end
  end
  if not mine then
    mine = { replica = replica, count = 0 }
    kept[#kept + 1] = mine
  end
  mine.count = math.min(mine.count + 1, MOST_NOTED)
  mine.last_ms = now
  local counted = 0
  if confirmed then
    for _, note in ipairs(kept) do
      counted = counted + note.count
      note.count = 0
    end
  end
  write_conn(endpoints, at, kept)
  return math.min(counted, policy.failure_threshold)
end

-- The replica has reached the endpoint: of the notes that stand its own is void.
local function forget_connect_failures(endpoints, at, replica, text)
  local others = {}
  for _, note in ipairs(read_conn(text)) do
    if note.replica ~= replica then
      others[#others + 1] = note
    end
  end
  write_conn(endpoints, at, others)
end
