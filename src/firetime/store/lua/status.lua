-- Tells where a message is, all in one look.
-- Returns its status, its fire-time in ms ("": none), its record, its state, the delivery count, what it ended as, value.
local high, normal, low, tasks, state, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local delayed, dead, ended, result = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local id = ARGV[1]
--#include delayed

local lanes = { h = high, n = normal, l = low }
local record = redis.call('HGET', tasks, id)
local history = redis.call('HGET', state, id)
for _, letter in ipairs({ 'h', 'n', 'l' }) do
  local score = redis.call('ZSCORE', delayed, id .. letter)
  if score then return { 'delayed', as_text(math.floor(tonumber(score) / SLOTS)), record, history, 0, letter, false } end
end
local place = redis.call('HGET', places, id)
if place then
  local letter, entry = place:sub(1, 1), place:sub(2)
  local row = redis.pcall('XPENDING', lanes[letter], 'workers', entry, entry, 1)
  local held = not row.err and row[1]
  return { held and 'running' or 'ready', entry:match('^%d+'), record, history, held and held[4] or 0, letter, false }
end
local died = redis.call('ZSCORE', dead, id)
if died then return { 'dead', died, record, history, 0, '', false } end
local outcome = redis.call('GET', ended)
if outcome then return { 'ended', '', false, false, 0, outcome, redis.call('GET', result) } end
return { 'unknown', '', record, history, 0, '', false }
