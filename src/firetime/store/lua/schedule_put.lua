-- Writes a schedule's definition where it is another than the one kept; a paused one stays paused.
-- ARGV next_ms is its first slot (-1: none). Returns "same", "added" or "changed".
local schedules, schedules_due, wake = KEYS[1], KEYS[2], KEYS[3]
local name, fingerprint, definition, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include schedules

local kept = redis.call('HGET', schedules, name)
local kept_print, paused = (kept or ''):match('^(%S+) (%d)')
if kept_print == fingerprint then return 'same' end
redis.call('HSET', schedules, name, fingerprint .. ' ' .. (paused or '0') .. ' ' .. definition)
redis.call('ZREM', schedules_due, name)
if paused ~= '1' and tonumber(next_ms) >= 0 then
  redis.call('ZADD', schedules_due, next_ms, name)
  wake_schedulers(tonumber(next_ms))
end
return kept and 'changed' or 'added'
