-- A stopping worker goes: its consumer is deleted where nothing is pending (XGROUP DELCONSUMER would delete that too), the
-- leader lease resigned, everyone told.
-- Returns 1 when it led.
local high, normal, low, workers, workers_seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local leader, wake, bell, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local token = ARGV[1]
--#include bell

local led = 0
for _, lane in ipairs({ high, normal, low }) do
  local pending = redis.pcall('XPENDING', lane, 'workers', '-', '+', 1, token)
  if not pending.err and #pending == 0 then redis.pcall('XGROUP', 'DELCONSUMER', lane, 'workers', token) end
end
redis.call('HDEL', workers, token)
redis.call('ZREM', workers_seen, token)
local lease = redis.call('GET', leader)
if lease and lease:match('^%S+') == token then
  redis.call('DEL', leader)
  redis.call('XADD', wake, 'MAXLEN', '=', 1, '*', 'f', '0')
  led = 1
end
ring()
return led
