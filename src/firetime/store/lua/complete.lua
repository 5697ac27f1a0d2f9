-- Edge: running -> done or cancelled
-- Ends deliveries well. From ARGV[7] on: `counted` pairs of metrics field and increment; `plain` messages of 3 values:
-- entry, deliveries, id; and the others with 11: entry, deliveries, id, outcome, unique key, ms to remember the outcome,
-- ms to keep the value, value, "1" for history, task name, number of its group (0: none). Each of the others has its
-- `ended` and `result` keys in KEYS[9...]; where there are members of groups, the three lanes, bell, paused and the groups
-- follow. Entries come in stream order within each part.
-- Returns the ids refused because the fence no longer holds, and those whose unique key was another's by now.
local lane, tasks, state, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local unique, cancelling, metrics, history = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local shift_us, consumer, counted, plain, history_length = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ended_channel = ARGV[6]
--#include clock fence unique ended metrics

local first = 7 + 2 * counted
local first_other = first + 3 * plain
local settled, usual, refused = sort_out(lane, consumer, 3, first, first_other - 1)
local others, special, others_refused = sort_out(lane, consumer, 11, first_other, #ARGV)
for _, entry in ipairs(others) do settled[#settled + 1] = entry end
for _, id in ipairs(others_refused) do refused[#refused + 1] = id end
local ids, not_freed = {}, {}
for _, i in ipairs(usual) do ids[#ids + 1] = ARGV[i + 2] end
for _, i in ipairs(special) do ids[#ids + 1] = ARGV[i + 2] end
if #settled == 0 then return { refused, not_freed } end
local after_others = 8 + 2 * (#ARGV - first_other + 1) / 11
-- no hash: fails while nothing is written yet
for i = after_others + 6, #KEYS do redis.call('HLEN', KEYS[i]) end

remove_entries(lane, settled)
-- It is done, whatever comes next: a key that is not what it should be must not leave a record without an entry.
for _, i in ipairs(special) do
  local id, outcome, key, remember_ms, result_ms = ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]
  local which = 2 * (i - first_other) / 11
  local freed = key == '' or select(2, pcall(free_unique, key, id)) == true
  if not freed then not_freed[#not_freed + 1] = id end
  if ARGV[i + 8] == '1' then
    redis.pcall('XADD', history, 'MAXLEN', '~', history_length, '*', 'i', id, 't', ARGV[i + 9], 'o', outcome,
      'm', redis.call('HGET', tasks, id) or '')
  end
  if tonumber(result_ms) > 0 then redis.call('SET', KEYS[10 + which], ARGV[i + 7], 'PX', result_ms) end
  if tonumber(remember_ms) > 0 then
    mark_ended(KEYS[9 + which], outcome, remember_ms)
    redis.call('PUBLISH', ended_channel, id)
  end
end
redis.call('HDEL', tasks, unpack(ids))
redis.pcall('HDEL', places, unpack(ids))
if redis.call('EXISTS', state) == 1 then redis.pcall('HDEL', state, unpack(ids)) end
if redis.call('EXISTS', cancelling) == 1 then redis.pcall('HDEL', cancelling, unpack(ids)) end
count_metrics(7)

if KEYS[after_others + 1] then
  local high, normal, low = KEYS[after_others + 1], KEYS[after_others + 2], KEYS[after_others + 3]
  local bell, paused = KEYS[after_others + 4], KEYS[after_others + 5]
--#include lanes bell joining

  local entered = false
  for _, i in ipairs(special) do
    local group = ARGV[i + 10] ~= '0' and KEYS[after_others + 5 + ARGV[i + 10]]
    if group and ARGV[i + 3] == 'cancelled' then
      redis.call('DEL', group)
    elseif group then
      entered = join(group, ARGV[i + 2]) or entered
    end
  end
  if entered then ring() end
end
return { refused, not_freed }
