-- Who holds a unique key. It may be taken when its holder is gone, or when its time is over and its holder does not run:
-- one that runs holds it to its end, for its first renewal may come later than a short time ends.
local function runs(id)
  local place = redis.call('HGET', places, id)
  local lane = place and lanes[place:sub(1, 1)]
  if not lane then return false end
  local entry = place:sub(2)
  local pending = redis.pcall('XPENDING', lane, 'workers', entry, entry, 1)
  return not pending.err and pending[1] ~= nil
end

local function unique_holder(key, now_ms)
  local held = redis.call('HGET', unique, key)
  if not held then return nil end
  local expiry, id = held:match('^(%d+) (.+)$')
  if not id or redis.call('HEXISTS', tasks, id) == 0 then return nil end
  expiry = tonumber(expiry)
  if expiry > 0 and expiry <= now_ms and not runs(id) then return nil end
  return id
end
