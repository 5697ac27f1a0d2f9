-- The score is the fire-time in ms x 0x1000, plus the place within the millisecond: first in, first out for 4,096 of
-- them, beyond that by id. A double is exact up to 2^53, which the score passes in the year 2039: it counts in steps of 2
-- from then on, from 2109 on in steps of 4, and so has 2,048 and 1,024 places.
-- A score is never turned into text by Lua itself, which keeps 14 digits only.
local SLOTS = 4096
local earliest_added

local function as_text(number) return string.format('%.0f', number) end

local function head_ms()
  local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  return head[2] and math.floor(tonumber(head[2]) / SLOTS) or nil
end

local function delay_until(fire_ms, member)
  local lowest, step = fire_ms * SLOTS, 1
  while lowest / step >= 9007199254740992 do step = 2 * step end
  local last = redis.call('ZREVRANGEBYSCORE', delayed, '(' .. as_text(lowest + SLOTS), as_text(lowest),
    'WITHSCORES', 'LIMIT', 0, 1)
  local score = lowest
  if last[2] then score = math.min(tonumber(last[2]) + step, lowest + SLOTS - step) end
  redis.call('ZADD', delayed, as_text(score), member)
  if not earliest_added or fire_ms < earliest_added then earliest_added = fire_ms end
end

-- Tells every promoter of a head that is earlier than the one they sleep for.
local function wake_promoters(former_head_ms)
  if earliest_added and (not former_head_ms or earliest_added < former_head_ms) then
    redis.pcall('XADD', wake, 'MAXLEN', '=', 1, '*', 'f', as_text(earliest_added))
  end
end
