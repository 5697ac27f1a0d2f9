-- Edge: none -> ready or delayed
-- Takes, from ARGV[5] on, for each message: id, record, spec. The spec is the lane letter; where more is to be said it is
-- the letter and "+", and 6 values follow: time kind ("", "in": us from now, "at": ms since 1970), time, unique key ("" if
-- none), ms to hold it past the fire-time (0: until the end), on_conflict, "1" to check an explicit id (whose `ended` key
-- is then the next of KEYS[12...]).
-- `plain` is "1" when all specs are but a letter and nothing bounds the queue: the usual case, in half the time.
-- Returns, flat, what was not plainly accepted: position, "exists" | "held" | "moved" | "full", id of the holder.
local tasks, places, high, normal, low = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local bell, paused, delayed, wake, unique, call = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local shift_us, number, max_length, plain = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include numbered bell lanes

local repeated = recalled()
if repeated then return repeated end

if plain == '1' then
  local records, standing = {}, {}
  for i = 5, #ARGV, 3 do
    local n = #records
    records[n + 1], records[n + 2] = ARGV[i], ARGV[i + 1]
  end
  redis.call('HSET', tasks, unpack(records))
  for i = 5, #ARGV, 3 do
    local n = #standing
    standing[n + 1], standing[n + 2] = ARGV[i], enter(ARGV[i + 2], ARGV[i])
  end
  redis.call('HSET', places, unpack(standing))
  ring()
  return remember({})
end

--#include clock unique unique_holder delayed

local now = now_us()
local now_ms = math.floor(now / 1000)
local room = tonumber(max_length)
if room > 0 then
  local waiting = redis.call('XLEN', high) + redis.call('XLEN', normal) + redis.call('XLEN', low)
  room = math.max(0, room - waiting - redis.call('ZCARD', delayed))
else
  room = math.huge
end

local answers, accepted = {}, {}
local ids_here, keys_here = {}, {} -- of what this batch has brought so far: id -> true, unique key -> message

local function answer(position, what, id)
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = position, what, id
end

local function delayed_member(id)
  for _, letter in ipairs({ 'n', 'h', 'l' }) do
    if redis.call('ZSCORE', delayed, id .. letter) then return id .. letter end
  end
end

local function fire_time(kind, time)
  if kind == 'in' then return math.ceil((now + tonumber(time)) / 1000) end
  return tonumber(time)
end

-- Reads and decides only: nothing is written before all is known to be acceptable.
local at, position, next_key = 5, 0, 12
while ARGV[at] do
  local id, record, spec = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 3
  local message = { id = id, letter = spec:sub(1, 1), record = record }
  local refused = false
  if #spec > 1 then
    local kind, time, key, hold_ms, on_conflict, explicit =
      ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4], ARGV[at + 5]
    at = at + 6
    local fire_ms = kind ~= '' and fire_time(kind, time) or now_ms
    if fire_ms > now_ms then message.fire_ms = fire_ms end
    if explicit == '1' then
      local ended = KEYS[next_key]
      next_key = next_key + 1
      if ids_here[id] or redis.call('HEXISTS', tasks, id) == 1 or redis.call('EXISTS', ended) == 1 then
        answer(position, 'exists', id)
        refused = true
      end
    end
    if key ~= '' and not refused then
      local before = keys_here[key]
      local holder = before and before.id or unique_holder(key, now_ms)
      local waiting = on_conflict == 'replace' and holder and not before and delayed_member(holder)
      if not holder then
        message.key, message.hold = key, unique_value(id, fire_ms, hold_ms)
      elseif waiting then
        message.replaced = waiting
        message.key, message.hold = key, unique_value(holder, fire_ms, hold_ms)
        message.id = holder
        answer(position, 'moved', holder)
      elseif on_conflict == 'replace' and before and before.fire_ms then
        -- as if it had come in a call of its own: the last one of a batch wins, whatever was sent together
        before.record, before.letter, before.fire_ms = record, message.letter, message.fire_ms
        before.hold = unique_value(holder, fire_ms, hold_ms)
        answer(position, 'moved', holder)
        refused = true
      else
        answer(position, 'held', holder)
        refused = true
      end
    end
  end
  if not refused and not message.replaced then
    if room < 1 then
      answer(position, 'full', '')
      refused = true
    else
      room = room - 1
    end
  end
  if not refused then
    ids_here[message.id] = true
    if message.key then keys_here[message.key] = message end
    accepted[#accepted + 1] = message
  end
  position = position + 1
end

if #accepted > 0 then
  local records = {}
  for i, message in ipairs(accepted) do records[2 * i - 1], records[2 * i] = message.id, message.record end
  -- With memory full this first write is the one refused, so that a call is accepted as a whole or not at all.
  redis.call('HSET', tasks, unpack(records))
  local standing = {}
  local former_head_ms
  for _, message in ipairs(accepted) do
    if message.replaced then
      former_head_ms = former_head_ms or head_ms()
      redis.call('ZREM', delayed, message.replaced)
    end
    if message.key then redis.call('HSET', unique, message.key, message.hold) end
    if message.fire_ms then
      if not earliest_added then former_head_ms = former_head_ms or head_ms() end
      delay_until(message.fire_ms, message.id .. message.letter)
    else
      local n = #standing
      standing[n + 1], standing[n + 2] = message.id, enter(message.letter, message.id)
    end
  end
  if #standing > 0 then
    redis.call('HSET', places, unpack(standing))
    ring()
  end
  wake_promoters(former_head_ms)
end
return remember(answers)
