-- Edge: delayed -> delayed or ready
-- Moves a delayed message to another fire-time; kind and time as in dispatch. Returns "rescheduled" (and the fire-time in
-- ms), or what it was instead: "ready", "running", "finished", "not found".
local high, normal, low, tasks, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, wake, bell, paused, unique = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local dead, ended = KEYS[11], KEYS[12]
local shift_us, id, kind, time, unique_key = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local hold_ms = ARGV[6]
--#include clock bell lanes delayed unique sound

check_lanes()
check_hashes(places, unique)
local now = now_us()
local now_ms = math.floor(now / 1000)
-- what lies in the past means now: it is not late
local fire_ms = math.max(now_ms, tonumber(time))
if kind == 'in' then fire_ms = tonumber(time) > 0 and math.ceil((now + time) / 1000) or now_ms end
for _, letter in ipairs({ 'h', 'n', 'l' }) do
  local former_head_ms = head_ms()
  if redis.call('ZREM', delayed, id .. letter) == 1 then
    if fire_ms > now_ms then
      delay_until(fire_ms, id .. letter)
      wake_promoters(former_head_ms)
    else
      redis.call('HSET', places, id, enter(letter, id, as_text(fire_ms)))
      ring()
    end
    if unique_key ~= '' and tonumber(hold_ms) > 0 and holds_unique(unique_key, id) then
      redis.call('HSET', unique, unique_key, unique_value(id, fire_ms, tonumber(hold_ms)))
    end
    return { 'rescheduled', as_text(fire_ms) }
  end
end
local place = redis.call('HGET', places, id)
if place then
  local entry = place:sub(2)
  local row = redis.pcall('XPENDING', lanes[place:sub(1, 1)], 'workers', entry, entry, 1)
  return { not row.err and row[1] and 'running' or 'ready', '' }
end
if redis.call('ZSCORE', dead, id) or redis.call('EXISTS', ended) == 1 then return { 'finished', '' } end
return { 'not found', '' }
