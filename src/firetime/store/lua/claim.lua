-- Edge: ready -> running; the only script that hands out deliveries.
-- Gives at most `free` of them, about `budget` bytes of records in all: leases that ran out first (when nobody swept within
-- `sweep_ms`; `sweep` is 0 for no, 1 for yes, or the time in us when it was asked for), then the lanes in the `order` of
-- their letters.
-- Returns the time in us, "" | "paused" | "remade" (groups were missing), how many stale entries were dropped, and then
-- 8 values each: lane letter, entry, delivery count, id, record, state, fire-time in ms, 1 when asked to cancel.
local high, normal, low, tasks, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local places, bell, paused, cancelling, swept = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local shift_us, consumer, free, order, sweep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease_ms, sweep_ms, budget = ARGV[6], ARGV[7], ARGV[8]
--#include clock bell entries

local lanes = { h = high, n = normal, l = low }
local given = { now_us(), '', 0 }
if redis.call('EXISTS', paused) == 1 then
  given[2] = 'paused'
  return given
end

local left, bytes_left, biggest = tonumber(free), tonumber(budget), 0
-- How much of a malformed entry travels to the worker; its record holds all of it.
local MOST_MALFORMED = 65536
local FIRST_TAKE = 4
local MOST_SWEPT, MOST_STALE = 100, 1000

local function with_group(lane, ask)
  local reply = ask()
  if type(reply) == 'table' and reply.err and reply.err:find('NOGROUP', 1, true) then
    redis.pcall('XGROUP', 'CREATE', lane, 'workers', '0', 'MKSTREAM')
    given[2] = 'remade'
    reply = ask()
  end
  if type(reply) == 'table' and reply.err then
    -- what other lanes gave already must reach the worker; this lane's error will be met again
    if #given > 3 then return {} end
    error(reply.err)
  end
  return reply or {}
end

local function netstrings(fields)
  local parts = {}
  for i, field in ipairs(fields) do parts[i] = #field .. ':' .. field .. ',' end
  return table.concat(parts)
end

-- Somebody else wrote this entry: it becomes a message whose record is the entry itself, which no codec reads.
local function adopt(letter, entry, fields)
  local id = adopted_id(letter, entry)
  local record = redis.call('HGET', tasks, id)
  if not record then
    record = netstrings(fields)
    redis.call('HSET', tasks, id, record)
    redis.call('HSET', places, id, letter .. entry)
  end
  return id, record
end

local states_kept = redis.call('EXISTS', state) == 1
local cancels_kept = redis.call('EXISTS', cancelling) == 1

local function hand_out(letter, rows, counts)
  local ids = {}
  for i, row in ipairs(rows) do ids[i] = row[2][1] == 'i' and row[2][2] or field(row[2], 'i') or '' end
  local standing = redis.call('HMGET', places, unpack(ids))
  local records = redis.call('HMGET', tasks, unpack(ids))
  local stale = {}
  for i, row in ipairs(rows) do
    local entry, id, record = row[1], ids[i], records[i]
    local ours = standing[i] == letter .. entry
    local foreign = not standing[i] and not record
    -- an adopted entry stays so even where a task has taken the id it names since
    if not ours and (foreign or redis.call('HEXISTS', places, adopted_id(letter, entry)) == 1) then
      id, record = adopt(letter, entry, row[2])
    elseif not ours then
      id = nil
      stale[#stale + 1] = entry
    end
    if id then
      if record and #record > MOST_MALFORMED and id:find(ADOPTED) then record = record:sub(1, MOST_MALFORMED) end
      local size = record and #record or 0
      bytes_left = bytes_left - size
      left = left - 1
      if size > biggest then biggest = size end
      local n = #given
      given[n + 1], given[n + 2], given[n + 3] = letter, entry, counts and counts[i] or 1
      given[n + 4], given[n + 5] = id, record
      given[n + 6] = states_kept and redis.call('HGET', state, id)
      given[n + 7] = ours and field(row[2], 'f') or false
      given[n + 8] = cancels_kept and redis.call('HEXISTS', cancelling, id) or 0
    end
  end
  if #stale > 0 then
    redis.call('XACK', lanes[letter], 'workers', unpack(stale))
    redis.call('XDEL', lanes[letter], unpack(stale))
    given[3] = given[3] + #stale
  end
end

-- Tells whether there may be more of them.
local function sweep_lane(letter)
  local lane, most = lanes[letter], math.min(left, MOST_SWEPT)
  local expired = with_group(lane, function()
    return redis.pcall('XPENDING', lane, 'workers', 'IDLE', lease_ms, '-', '+', most)
  end)
  for _, row in ipairs(expired) do
    if left < 1 or bytes_left <= 0 then return true end
    local entry = redis.call('XCLAIM', lane, 'workers', consumer, lease_ms, row[1])[1]
    if entry then
      hand_out(letter, { entry }, { row[4] + 1 })
    elseif #redis.call('XRANGE', lane, row[1], row[1]) == 0 then
      -- deleted behind our back, which Redis 6.2 leaves pending
      redis.call('XACK', lane, 'workers', row[1])
    end
  end
  return #expired == most
end

-- A call that lay in a frozen server's socket runs when the server does again, before any renewal can: idle times went
-- on meanwhile, and leases that look lost are not.
local function asked_long_ago()
  local asked_us = tonumber(sweep)
  return asked_us > 1 and given[1] - asked_us > lease_ms * 250
end

-- Writes, even where memory is full: the deletion, which is never refused, lets the script write on.
local function takes_the_sweep()
  if sweep == '0' or asked_long_ago() or redis.call('EXISTS', swept) == 1 then return false end
  redis.call('DEL', swept)
  redis.call('SET', swept, consumer, 'PX', sweep_ms)
  return true
end

local function read_lane(letter)
  local lane, take = lanes[letter], FIRST_TAKE
  while left > 0 and bytes_left > 0 and given[3] < MOST_STALE do
    -- the sizes seen so far tell how many more are likely to fit the budget; what is not seen yet may be larger
    take = math.min(left, take, 500, math.max(1, math.floor(bytes_left / math.max(1, biggest))))
    local reply = with_group(lane, function()
      return redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer, 'COUNT', take, 'STREAMS', lane, '>')
    end)
    local rows = reply[1] and reply[1][2] or {}
    if #rows > 0 then hand_out(letter, rows) end
    if #rows < take then return end
    take = 2 * take
  end
end

local more = false
if takes_the_sweep() then
  for letter in order:gmatch('.') do
    more = left < 1 or sweep_lane(letter) or more
  end
  -- more orphans than slots here: let the next worker look at once
  if more then redis.call('DEL', swept) end
end
for letter in order:gmatch('.') do read_lane(letter) end
if more or left < 1 or bytes_left <= 0 or given[3] >= MOST_STALE then ring() end
return given
