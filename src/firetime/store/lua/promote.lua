-- Edge: delayed -> ready
-- Moves the due head, at most `most`, without looking at records: for the holder of the leader lease what is due, for
-- anyone else what is `grace_ms` overdue.
-- Returns how many, the fire-time of the next head in ms (-1: none), the time in us, the newest wake id, what the moved
-- ones were late by in all, in ms, and 1 when the caller leads.
local delayed, high, normal, low, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local bell, paused, wake, leader, metrics = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local shift_us, token, grace_ms, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include clock bell lanes delayed sound

local started = now_us()
local until_ms = math.floor(started / 1000)
local lease = redis.pcall('GET', leader)
local leads = type(lease) == 'string' and lease:match('^%S+') == token
if not leads then until_ms = until_ms - grace_ms end

local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(' .. as_text((until_ms + 1) * SLOTS), 'WITHSCORES',
  'LIMIT', 0, most)
local moved, late_ms = #due / 2, 0
if moved > 0 then
  check_lanes()
  check_hashes(places)
  redis.call('ZREMRANGEBYRANK', delayed, 0, moved - 1)
  local standing = {}
  for i = 1, #due, 2 do
    local id, letter = due[i]:sub(1, -2), due[i]:sub(-1)
    if not lanes[letter] then id, letter = due[i], 'n' end -- somebody else wrote it: a dead letter, in the end
    local fire_ms = math.floor(tonumber(due[i + 1]) / SLOTS)
    late_ms = late_ms + started / 1000 - fire_ms
    standing[#standing + 1] = id
    standing[#standing + 1] = enter(letter, id, as_text(fire_ms))
  end
  redis.call('HSET', places, unpack(standing))
  ring()
  redis.pcall('HINCRBY', metrics, 'delayed_tasks_schedule_sum', as_text(now_us() - started))
  redis.pcall('HINCRBY', metrics, 'delayed_tasks_schedule_count', moved)
  redis.pcall('HINCRBY', metrics, 'delayed_tasks_late_ms', as_text(late_ms))
end
local newest = redis.call('XREVRANGE', wake, '+', '-', 'COUNT', 1)[1]
return { moved, head_ms() or -1, now_us(), newest and newest[1] or '0-0', as_text(late_ms), leads and 1 or 0 }
