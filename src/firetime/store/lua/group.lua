-- Edge: none -> ready or delayed, for members of a group
-- Numbered. All members of a call are accepted, or none. Takes the group's time to live, "1" where the call begins the group,
-- and what follows it: lane letter, id, a space, record of the callback, in the group's last call; "" before. From ARGV[7]
-- on, 6 values for each member: id, record, lane letter, time kind ("", "in": us from now, "at": ms since 1970), time, "1" to
-- check an explicit id (whose `ended` key is then the next of KEYS[12...]).
-- Returns nothing, or why the call was refused: position, "exists" | "full" | "gone", id.
local tasks, places, high, normal, low, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local paused, delayed, wake, call, group = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local shift_us, number, max_length, ttl_ms, begins, callback = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
--#include numbered bell lanes clock delayed joining

local repeated = recalled()
if repeated then return repeated end
if begins ~= '1' and redis.call('EXISTS', group) == 0 then return remember({ 0, 'gone', '' }) end

-- Reads and decides only: nothing is written before all is known to be acceptable.
local count, next_key = (#ARGV - 6) / 6, 12
if tonumber(max_length) > 0 then
  local waiting = redis.call('XLEN', high) + redis.call('XLEN', normal) + redis.call('XLEN', low)
  if waiting + redis.call('ZCARD', delayed) + count > tonumber(max_length) then return remember({ 0, 'full', '' }) end
end
for i = 7, #ARGV, 6 do
  if ARGV[i + 5] == '1' then
    local ended = KEYS[next_key]
    next_key = next_key + 1
    if redis.call('HEXISTS', tasks, ARGV[i]) == 1 or redis.call('EXISTS', ended) == 1 then
      return remember({ (i - 7) / 6, 'exists', ARGV[i] })
    end
  end
end
local now = now_us()
local now_ms, former_head_ms = math.floor(now / 1000), head_ms()

-- With memory full this first write is the one refused: the whole call with it.
local waiting_for = { '', callback }
for i = 7, #ARGV, 6 do
  local n = #waiting_for
  waiting_for[n + 1], waiting_for[n + 2] = ARGV[i], ''
end
redis.call('HSET', group, unpack(waiting_for))
redis.call('PEXPIRE', group, ttl_ms)
local records, standing = {}, {}
for i = 7, #ARGV, 6 do
  local n = #records
  records[n + 1], records[n + 2] = ARGV[i], ARGV[i + 1]
  local fire_ms = ARGV[i + 3] == 'in' and math.ceil((now + tonumber(ARGV[i + 4])) / 1000) or tonumber(ARGV[i + 4])
  if ARGV[i + 3] ~= '' and fire_ms > now_ms then
    delay_until(fire_ms, ARGV[i] .. ARGV[i + 2])
  else
    local s = #standing
    standing[s + 1], standing[s + 2] = ARGV[i], enter(ARGV[i + 2], ARGV[i])
  end
end
if #records > 0 then redis.call('HSET', tasks, unpack(records)) end
if #standing > 0 then redis.call('HSET', places, unpack(standing)) end
local followed = follow(group)
if followed or #standing > 0 then ring() end
wake_promoters(former_head_ms)
return remember({})
