-- Forgets workers that were not heard for `gone_ms`, and deletes the consumers they left, never one with pending work.
-- Returns how many of each.
local high, normal, low, workers, workers_seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local shift_us, gone_ms = ARGV[1], ARGV[2]
--#include clock

local before = string.format('%.0f', math.floor(now_us() / 1000) - gone_ms)
local gone = redis.call('ZRANGEBYSCORE', workers_seen, '-inf', before, 'LIMIT', 0, 100)
for _, token in ipairs(gone) do
  redis.call('ZREM', workers_seen, token)
  redis.call('HDEL', workers, token)
end
local deleted = 0
for _, lane in ipairs({ high, normal, low }) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', lane, 'workers')
  for _, about in ipairs(consumers.err and {} or consumers) do
    local facts = {}
    for i = 1, #about, 2 do facts[about[i]] = about[i + 1] end
    local idle = facts.idle > tonumber(gone_ms) and facts.pending == 0
    if idle and not redis.call('ZSCORE', workers_seen, facts.name) then
      redis.call('XGROUP', 'DELCONSUMER', lane, 'workers', facts.name)
      deleted = deleted + 1
    end
  end
end
return { #gone, deleted }
