-- A schedule is "<fingerprint> <1 when paused, else 0> <definition>"; the definition is opaque here.
local function kept_schedule(name)
  local kept = redis.call('HGET', schedules, name)
  local kept_print, kept_pause, definition = (kept or ''):match('^(%S+) (%d) (.*)$')
  return kept_print or '', kept_pause or '0', definition or ''
end

local function set_slot(name, slot_ms)
  redis.call('ZREM', schedules_due, name) -- never refused, and lets the script write where memory is full
  if tonumber(slot_ms) >= 0 then redis.call('ZADD', schedules_due, slot_ms, name) end
end

local function next_slot_ms()
  local head = redis.call('ZRANGE', schedules_due, 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or -1
end

-- Tells every scheduler of a slot that may be earlier than what it sleeps for.
local function wake_schedulers(slot_ms)
  if tonumber(slot_ms) >= 0 then redis.pcall('XADD', schedules_wake, 'MAXLEN', '=', 1, '*', 's', slot_ms) end
end
