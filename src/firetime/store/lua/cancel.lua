-- Edge: delayed or ready -> cancelled; a running one is asked to stop
-- Returns "cancelled", "requested", "finished" or "not found".
local high, normal, low, tasks, state, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local unique, delayed, dead, cancelling, ended = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local shift_us, id, unique_key, remember_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local control_channel, ended_channel = ARGV[5], ARGV[6]
--#include clock unique ended

local lanes = { h = high, n = normal, l = low }
local function cancelled()
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', state, id)
  redis.call('HDEL', places, id)
  redis.call('HDEL', cancelling, id) -- asked while it ran, and then given back
  if unique_key ~= '' then free_unique(unique_key, id) end
  mark_ended(ended, 'cancelled', remember_ms)
  redis.call('PUBLISH', ended_channel, id)
  return 'cancelled'
end

if redis.call('ZREM', delayed, id .. 'h', id .. 'n', id .. 'l') > 0 then return cancelled() end
local place = redis.call('HGET', places, id)
if place then
  local lane, entry = lanes[place:sub(1, 1)], place:sub(2)
  local pending = redis.pcall('XPENDING', lane, 'workers', entry, entry, 1)
  if pending.err or #pending == 0 then
    redis.call('XDEL', lane, entry)
    return cancelled()
  end
  redis.call('HDEL', cancelling, id) -- never refused, and lets the script write where memory is full
  redis.call('HSET', cancelling, id, string.format('%.0f', math.floor(now_us() / 1000)))
  redis.call('PUBLISH', control_channel, id)
  return 'requested'
end
if redis.call('ZSCORE', dead, id) or redis.call('EXISTS', ended) == 1 then return 'finished' end
return 'not found'
