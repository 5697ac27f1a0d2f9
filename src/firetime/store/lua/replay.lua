-- Edge: dead -> ready
-- Brings dead letters back with fresh counters, but for that of the deliveries: the fence that user code sees goes on
-- growing. Their unique key is taken again. From ARGV[3] on, 4 values each: id, lane letter, unique key, ms to hold it.
-- Returns, flat, what was not replayed: position, "not dead" | "held", id of the holder.
local high, normal, low, tasks, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local places, unique, dead, bell, paused, call = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local shift_us, number = ARGV[1], ARGV[2]
--#include clock numbered bell lanes unique unique_holder sound

local repeated = recalled()
if repeated then return repeated end
check_lanes()
check_hashes(state, places, unique)
local now_ms = math.floor(now_us() / 1000)
local answers, entered = {}, false
local function answer(position, what, id)
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = position, what, id
end
for i = 3, #ARGV, 4 do
  local id, letter, key, hold_ms = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local holder = key ~= '' and unique_holder(key, now_ms)
  if not redis.call('ZSCORE', dead, id) or redis.call('HEXISTS', tasks, id) == 0 then
    answer((i - 3) / 4, 'not dead', '')
  elseif holder and holder ~= id then
    answer((i - 3) / 4, 'held', holder)
  else
    redis.call('ZREM', dead, id)
    local delivered = (redis.call('HGET', state, id) or ''):match('^%d+ (%d+) ')
    redis.call('HDEL', state, id)
    if delivered then redis.call('HSET', state, id, '0 ' .. delivered .. ' {}') end
    if key ~= '' then redis.call('HSET', unique, key, unique_value(id, now_ms, hold_ms)) end
    redis.call('HSET', places, id, enter(letter, id))
    entered = true
  end
end
if entered then ring() end
return remember(answers)
