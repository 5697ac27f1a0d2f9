-- Tells which slots are due, at most `most`, and which is the next after them.
-- Returns the time in us, the next slot in ms (-1: none), and for each that is due 3 values: name, slot in ms, and the
-- definition with what goes before it.
local schedules, schedules_due = KEYS[1], KEYS[2]
local shift_us, most = ARGV[1], ARGV[2]
--#include clock

local now = now_us()
local told = { now, -1 }
local heads = redis.call('ZRANGE', schedules_due, 0, most, 'WITHSCORES')
for i = 1, #heads, 2 do
  local slot_ms = tonumber(heads[i + 1])
  local kept = redis.call('HGET', schedules, heads[i])
  if not kept then
    redis.call('ZREM', schedules_due, heads[i])
  elseif slot_ms > math.floor(now / 1000) or i > 2 * most then
    told[2] = slot_ms
    break
  else
    local n = #told
    told[n + 1], told[n + 2], told[n + 3] = heads[i], slot_ms, kept
  end
end
return told
