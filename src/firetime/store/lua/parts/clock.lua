-- The server's clock, the only one that decides anything; shift_us is 0 but in tests that travel in time.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2] + shift_us
end
