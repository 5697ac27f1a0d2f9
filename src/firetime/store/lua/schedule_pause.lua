-- Pauses a schedule ("1") or lets it go on ("0") from next_ms. Returns 1 when there is one of that fingerprint.
local schedules, schedules_due, wake = KEYS[1], KEYS[2], KEYS[3]
local name, fingerprint, pause, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include schedules

local kept = redis.call('HGET', schedules, name)
local kept_print, definition = (kept or ''):match('^(%S+) %d (.*)$')
if kept_print ~= fingerprint then return 0 end
redis.call('HSET', schedules, name, fingerprint .. ' ' .. pause .. ' ' .. definition)
redis.call('ZREM', schedules_due, name)
if pause == '0' and tonumber(next_ms) >= 0 then
  redis.call('ZADD', schedules_due, next_ms, name)
  wake_schedulers(tonumber(next_ms))
end
return 1
