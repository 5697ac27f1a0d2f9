-- Edge: a due slot -> runs, and the next slot
-- Whoever comes, and however many: the slot moves once, under the definition whose fingerprint the caller carries, and
-- never before its time. From ARGV[9] on, 4 values for each run: id, record, lane letter, when it is due in ms.
-- A run is left out where its unique key is held, or where `overlap` is "skip" and the last one still lives: it waits,
-- runs, or waits to be tried again.
-- Returns "ticked", "moved" (somebody else has), "changed" (the definition) or "early"; how many runs were sent; the next
-- slot of this schedule in ms (-1: none).
local schedules, schedules_due, schedules_last, tasks, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local high, normal, low, delayed, dead = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local wake, bell, paused, unique = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local shift_us, name, fingerprint, slot_ms, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local overlap, unique_key, hold_ms = ARGV[6], ARGV[7], ARGV[8]
--#include clock schedules bell lanes delayed unique unique_holder

local now_ms = math.floor(now_us() / 1000)
local due = redis.call('ZSCORE', schedules_due, name)
if not due or tonumber(due) ~= tonumber(slot_ms) then return { 'moved', 0, tonumber(due or -1) } end
if kept_schedule(name) ~= fingerprint then return { 'changed', 0, tonumber(due) } end
if tonumber(slot_ms) > now_ms then return { 'early', 0, tonumber(due) } end

local function lives(id)
  return redis.call('HEXISTS', tasks, id) == 1 and not redis.call('ZSCORE', dead, id)
end

local last = redis.call('HGET', schedules_last, name)
local sent, entered, former_head_ms = 0, false, head_ms()
for i = 9, #ARGV, 4 do
  local id, letter, fire_ms = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 3])
  local hindered = (overlap == 'skip' and last and lives(last))
    or (unique_key ~= '' and unique_holder(unique_key, now_ms))
  -- With memory full this first write is the one refused: the slot stays due.
  if not hindered and redis.call('HSETNX', tasks, id, ARGV[i + 1]) == 1 then
    if unique_key ~= '' then
      redis.call('HSET', unique, unique_key, unique_value(id, math.max(fire_ms, now_ms), tonumber(hold_ms)))
    end
    if fire_ms > now_ms then
      delay_until(fire_ms, id .. letter)
    else
      redis.call('HSET', places, id, enter(letter, id, ARGV[i + 3]))
      entered = true
    end
    last, sent = id, sent + 1
  end
end
if sent > 0 then redis.call('HSET', schedules_last, name, last) end
set_slot(name, next_ms)
if entered then ring() end
wake_promoters(former_head_ms)
return { 'ticked', sent, tonumber(next_ms) }
