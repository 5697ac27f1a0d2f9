-- A unique key is held by "<expiry in ms, 0: none> <task id>". It may be taken when its time is over or its holder is gone.
local function unique_holder(key, now_ms)
  local held = redis.call('HGET', unique, key)
  if not held then return nil end
  local expiry, id = held:match('^(%d+) (.+)$')
  if not id then return nil end
  expiry = tonumber(expiry)
  if expiry > 0 and expiry <= now_ms then return nil end
  if redis.call('HEXISTS', tasks, id) == 0 then return nil end
  return id
end

local function unique_value(id, fire_ms, unique_ms)
  local expiry = unique_ms > 0 and fire_ms + unique_ms or 0
  return string.format('%.0f', expiry) .. ' ' .. id
end

local function holds_unique(key, id)
  local held = redis.call('HGET', unique, key)
  return held and held:match('^%d+ (.+)$') == id
end

-- Freed only by the id it names; false when it names another by now.
local function free_unique(key, id)
  if not holds_unique(key, id) then return false end
  redis.call('HDEL', unique, key)
  return true
end
