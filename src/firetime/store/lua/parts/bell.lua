-- Tells one idle worker that there may be something to claim; silent while the queue is paused. It comes after the
-- writes that count, so that no trouble with it may leave the script as an error.
local function ring()
  if redis.pcall('LLEN', bell) == 0 and redis.call('EXISTS', paused) == 0 then
    redis.pcall('LPUSH', bell, 1)
  end
end
