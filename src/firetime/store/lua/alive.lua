-- A worker says that it is there and what it runs.
-- Returns how many workers were heard within `fresh_ms`.
local workers, workers_seen = KEYS[1], KEYS[2]
local shift_us, token, about, fresh_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include clock

local now_ms = math.floor(now_us() / 1000)
redis.call('HDEL', workers, token) -- never refused, and lets the script write where memory is full
redis.call('HSET', workers, token, about)
redis.call('ZADD', workers_seen, string.format('%.0f', now_ms), token)
return redis.call('ZCOUNT', workers_seen, string.format('%.0f', now_ms - fresh_ms), '+inf')
