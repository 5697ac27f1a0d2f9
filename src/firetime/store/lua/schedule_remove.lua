-- Ends a schedule; runs already sent go on. Returns 1 when there was one.
local schedules, schedules_due, schedules_last = KEYS[1], KEYS[2], KEYS[3]
local name = ARGV[1]

redis.call('ZREM', schedules_due, name)
redis.call('HDEL', schedules_last, name)
return redis.call('HDEL', schedules, name)
