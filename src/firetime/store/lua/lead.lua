-- Takes or prolongs the leader lease. Its value is "<token> <epoch> <since, in ms>".
-- Returns 1 for the leader and 0 for anyone else, the epoch, who leads, since when, the fire-time of the head in ms
-- (-1: none), the time in us, the newest wake id, the next slot of the schedules in ms (-1: none), how long the lease
-- still lasts in ms, the newest wake id of the schedules.
local leader, epoch, delayed, wake, schedules_due, schedules_wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local shift_us, token, ttl_ms = ARGV[1], ARGV[2], ARGV[3]
--#include clock delayed schedules

local LEASE = '^(%S+) (%d+) (%d+)$'
local lease = redis.call('GET', leader)
local left_ms = redis.call('PTTL', leader)
if not lease or not lease:match(LEASE) then
  redis.call('DEL', leader) -- never refused, and lets the script write where memory is full
  lease = string.format('%s %d %.0f', token, redis.call('INCR', epoch), math.floor(now_us() / 1000))
  redis.call('SET', leader, lease, 'PX', ttl_ms)
  left_ms = tonumber(ttl_ms)
elseif lease:match('^%S+') == token or left_ms < 0 then
  -- one without an end was written by hand: it ends like any other
  redis.call('PEXPIRE', leader, ttl_ms)
  left_ms = tonumber(ttl_ms)
end
local function newest(stream)
  local entry = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return entry and entry[1] or '0-0'
end
local who, number, since_ms = lease:match(LEASE)
return { who == token and 1 or 0, tonumber(number), who, tonumber(since_ms), head_ms() or -1, now_us(),
  newest(wake), next_slot_ms(), left_ms, newest(schedules_wake) }
