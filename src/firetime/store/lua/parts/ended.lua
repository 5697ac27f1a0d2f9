-- What is left of a task that ended: its outcome for a while, where a result, an explicit id or a cancel asks for it.
local function mark_ended(key, outcome, ttl_ms)
  if tonumber(ttl_ms) < 1 then return end
  redis.call('SET', key, outcome .. ' ' .. string.format('%.0f', now_us() / 1000), 'PX', ttl_ms)
end
