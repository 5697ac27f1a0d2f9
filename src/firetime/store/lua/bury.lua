-- Edge: running -> dead
-- From ARGV[5] on: `counted` pairs of metrics field and increment; then 5 values each: entry, deliveries, id, state,
-- unique key. The record stays, with its state, until it is replayed or purged.
-- Returns the ids refused because the fence no longer holds.
local lane, state, places, unique, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cancelling, metrics = KEYS[6], KEYS[7]
local shift_us, consumer, counted, ended_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include clock fence unique metrics sound

local settled, held, refused = sort_out(lane, consumer, 5, 5 + 2 * counted, #ARGV)
if #settled == 0 then return { refused } end
redis.call('ZCARD', dead)
check_hashes(state, places, unique, cancelling)
remove_entries(lane, settled)

local now_ms = string.format('%.0f', math.floor(now_us() / 1000))
for _, i in ipairs(held) do
  local id, key = ARGV[i + 2], ARGV[i + 4]
  redis.call('HSET', state, id, ARGV[i + 3])
  redis.call('ZADD', dead, now_ms, id)
  redis.call('HDEL', places, id)
  redis.call('HDEL', cancelling, id)
  if key ~= '' then free_unique(key, id) end
  redis.call('PUBLISH', ended_channel, id)
end
count_metrics(5)
return { refused }
