-- Pauses a schedule ("1"), or lets one that is paused go on ("0") from its slot next_ms (-1: none).
-- Returns 1, or 0 where another definition than the expected one is kept by now.
local schedules, schedules_due, schedules_wake = KEYS[1], KEYS[2], KEYS[3]
local name, fingerprint, pause, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include schedules

local kept_print, kept_pause, definition = kept_schedule(name)
if kept_print ~= fingerprint then return 0 end
if kept_pause == pause then return 1 end
set_slot(name, pause == '1' and -1 or next_ms)
redis.call('HSET', schedules, name, fingerprint .. ' ' .. pause .. ' ' .. definition)
if pause == '0' then wake_schedulers(next_ms) end
return 1
