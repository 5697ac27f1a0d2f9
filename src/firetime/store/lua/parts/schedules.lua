-- A schedule is "<fingerprint> <1 when paused, else 0> <definition>"; the definition is opaque here.
local function next_slot_ms()
  local head = redis.call('ZRANGE', schedules_due, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or -1
end

-- Tells every scheduler of a slot that may be earlier than what it sleeps for.
local function wake_schedulers(slot_ms)
  redis.call('XADD', wake, 'MAXLEN', '=', 1, '*', 's', string.format('%.0f', slot_ms))
end
