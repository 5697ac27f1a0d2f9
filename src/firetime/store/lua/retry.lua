-- Edge: running -> delayed (ready when the delay is 0), or cancelled where that was asked meanwhile
-- From ARGV[7] on: `counted` pairs of metrics field and increment; then 7 values each: entry, deliveries, id, delay in us,
-- state, unique key, ms to hold it. Each has its `ended` key in KEYS[14...].
-- Returns the ids refused because the fence no longer holds, and those that ended as cancelled.
local high, normal, low, tasks, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local places, delayed, wake, bell, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local unique, cancelling, metrics = KEYS[11], KEYS[12], KEYS[13]
local shift_us, consumer, letter, counted, remember_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ended_channel = ARGV[6]
--#include clock fence lanes bell unique delayed ended metrics sound

local lane = lanes[letter]
local first, cancelled = 7 + 2 * counted, {}
local settled, held, refused = sort_out(lane, consumer, 7, first, #ARGV)
if #settled == 0 then return { refused, cancelled } end
local now, former_head_ms = now_us(), head_ms()
check_hashes(state, places, unique)
remove_entries(lane, settled)

local entered = false
for _, i in ipairs(held) do
  local id, delay_us, key, hold_ms = ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 5], tonumber(ARGV[i + 6])
  if redis.call('HDEL', cancelling, id) == 1 then
    redis.call('HDEL', tasks, id)
    redis.call('HDEL', state, id)
    redis.call('HDEL', places, id)
    if key ~= '' then free_unique(key, id) end
    mark_ended(KEYS[14 + (i - first) / 7], 'cancelled', remember_ms)
    redis.call('PUBLISH', ended_channel, id)
    cancelled[#cancelled + 1] = id
  else
    local fire_ms = math.ceil((now + delay_us) / 1000)
    redis.call('HSET', state, id, ARGV[i + 4])
    if key ~= '' and hold_ms > 0 and holds_unique(key, id) then
      redis.call('HSET', unique, key, unique_value(id, fire_ms, hold_ms))
    end
    if delay_us <= 0 then
      redis.call('HSET', places, id, enter(letter, id))
      entered = true
    else
      redis.call('HDEL', places, id)
      delay_until(fire_ms, id .. letter)
    end
  end
end
if entered then ring() end
wake_promoters(former_head_ms)
count_metrics(7)
return { refused, cancelled }
