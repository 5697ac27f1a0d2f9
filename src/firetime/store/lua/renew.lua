-- Prolongs the leases this consumer still holds, never takes one back: ownership is read first, and JUSTID leaves the
-- delivery count, which is part of the fence, alone.
-- From ARGV[5] on, 4 values for each delivery the worker knows: lane letter, entry, deliveries, id; then 3 values for
-- each unique key it holds for a time: key, id, ms.
-- Returns the known entries lost, those asked to cancel (ids), and, flat, what is pending for longer than `unknown_ms`
-- without the worker knowing (the reply of its claim was lost): lane letter, entry, deliveries, id.
local high, normal, low, tasks, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cancelling, unique = KEYS[6], KEYS[7]
local shift_us, consumer, known, unknown_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include clock unique entries

local lanes = { h = high, n = normal, l = low }
local lost, to_cancel, unknown = {}, {}, {}
local counts, ids = {}, {}
local last = 4 + 4 * known
for i = 5, last, 4 do
  local place = ARGV[i] .. ARGV[i + 1]
  counts[place], ids[place] = tonumber(ARGV[i + 2]), ARGV[i + 3]
end

-- None for a stale entry, whose id stands elsewhere: the next sweep drops it.
local function id_of(letter, entry)
  local row = redis.call('XRANGE', lanes[letter], entry, entry)[1]
  local id = row and field(row[2], 'i')
  if id and redis.call('HGET', places, id) == letter .. entry then return id end
  local adopted = adopted_id(letter, entry)
  if redis.call('HEXISTS', tasks, adopted) == 1 then return adopted end
end

local most = known + 1000
for _, letter in ipairs({ 'h', 'n', 'l' }) do
  local lane = lanes[letter]
  local rows = redis.pcall('XPENDING', lane, 'workers', '-', '+', most, consumer)
  if rows.err and not rows.err:find('NOGROUP', 1, true) then error(rows.err) end
  local held = {}
  for _, row in ipairs(rows) do
    local place = letter .. row[1]
    if counts[place] == row[4] then
      held[#held + 1] = row[1]
      counts[place] = nil
    elseif not counts[place] and row[3] >= tonumber(unknown_ms) then
      local id = id_of(letter, row[1])
      if id then
        local n = #unknown
        unknown[n + 1], unknown[n + 2], unknown[n + 3], unknown[n + 4] = letter, row[1], row[4], id
      end
    end
  end
  -- so many are unknown that the known ones may stand behind them: they are not lost for that
  for place, count in pairs(#rows == most and counts or {}) do
    local entry = place:sub(2)
    local row = place:sub(1, 1) == letter and redis.call('XPENDING', lane, 'workers', entry, entry, 1, consumer)[1]
    if row and row[4] == count then
      held[#held + 1] = entry
      counts[place] = nil
    end
  end
  for i = 1, #held, 500 do
    local part = { unpack(held, i, math.min(i + 499, #held)) }
    part[#part + 1] = 'JUSTID'
    redis.call('XCLAIM', lane, 'workers', consumer, 0, unpack(part))
  end
end
for place in pairs(counts) do lost[#lost + 1] = place end

if redis.call('EXISTS', cancelling) == 1 then
  for place, id in pairs(ids) do
    if redis.call('HEXISTS', cancelling, id) == 1 then to_cancel[#to_cancel + 1] = id end
  end
end
local now_ms = math.floor(now_us() / 1000)
for i = last + 1, #ARGV, 3 do
  if holds_unique(ARGV[i], ARGV[i + 1]) then
    redis.pcall('HSET', unique, ARGV[i], unique_value(ARGV[i + 1], now_ms, tonumber(ARGV[i + 2])))
  end
end
return { lost, to_cancel, unknown }
