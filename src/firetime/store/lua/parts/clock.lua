-- The server's clock, the only one that decides anything. Tests that travel in time move it: shift_us is 0 everywhere else;
-- "=" and a time in us stops it there.
local stopped_us = shift_us:byte() == 61 and tonumber(shift_us:sub(2))
local function now_us()
  if stopped_us then return stopped_us end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2] + shift_us
end
