-- A unique key is held by "<expiry in ms, 0: none> <task id>".
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
