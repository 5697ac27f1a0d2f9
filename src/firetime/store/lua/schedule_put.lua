-- Writes a schedule's definition where it is another than the one kept; a paused one stays paused.
-- `expected` is the fingerprint that the caller saw kept ("": none), `next_ms` the first slot (-1: none), `keep` 1 to leave
-- a slot that is waiting as it is: the times are the same, something else has changed.
-- Returns "same", "added", "changed", or "again" where another definition than the expected one is kept by now.
local schedules, schedules_due, schedules_wake = KEYS[1], KEYS[2], KEYS[3]
local name, fingerprint, definition, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected, keep = ARGV[5], ARGV[6]
--#include schedules

local kept_print, kept_pause = kept_schedule(name)
if kept_print == fingerprint then
  -- somebody deleted its slot, and with it the schedule would stand still for ever
  if kept_pause ~= '1' and not redis.call('ZSCORE', schedules_due, name) then
    set_slot(name, next_ms)
    wake_schedulers(next_ms)
  end
  return 'same'
end
if kept_print ~= expected then return 'again' end
redis.call('HSET', schedules, name, fingerprint .. ' ' .. kept_pause .. ' ' .. definition)
local stays = keep == '1' and redis.call('ZSCORE', schedules_due, name)
if kept_pause ~= '1' and not stays then
  set_slot(name, next_ms)
  wake_schedulers(next_ms)
end
return kept_print == '' and 'added' or 'changed'
