-- Tells which slot is next. Returns the time in us; where there is one also the schedule's name, the slot in ms, and
-- the definition with what goes before it.
local schedules, schedules_due = KEYS[1], KEYS[2]
local shift_us = ARGV[1]
--#include clock

local head = redis.call('ZRANGE', schedules_due, 0, 0, 'WITHSCORES')
if not head[1] then return { now_us() } end
local kept = redis.call('HGET', schedules, head[1])
if not kept then redis.call('ZREM', schedules_due, head[1]) end
return { now_us(), head[1], head[2], kept }
