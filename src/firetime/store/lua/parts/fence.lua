-- What this consumer still holds of a batch: entry -> delivery count. One XPENDING covers the usual case; a range that
-- holds more than was asked for (a long task beside short ones) is settled by asking for the missing ones one by one.
local function held_counts(lane, consumer, entries)
  local counts = {}
  local batch = #entries
  if batch == 0 then return counts end
  local rows = redis.pcall('XPENDING', lane, 'workers', entries[1], entries[batch], 2 * batch + 16, consumer)
  if rows.err then
    if rows.err:find('NOGROUP', 1, true) then return counts end
    error(rows.err)
  end
  for _, row in ipairs(rows) do counts[row[1]] = row[4] end
  for _, entry in ipairs(entries) do
    if not counts[entry] then
      local row = redis.call('XPENDING', lane, 'workers', entry, entry, 1, consumer)[1]
      if row then counts[entry] = row[4] end
    end
  end
  return counts
end

-- Of the messages in ARGV from `first` to `last`, `width` values each that begin with entry, deliveries, id: the entries
-- that are still held, where they stand in ARGV, and the ids of the others, which are refused.
local function sort_out(lane, consumer, width, first, last)
  local entries, settled, held, refused = {}, {}, {}, {}
  for i = first, last, width do entries[#entries + 1] = ARGV[i] end
  local counts = held_counts(lane, consumer, entries)
  for i = first, last, width do
    if counts[ARGV[i]] == tonumber(ARGV[i + 1]) then
      settled[#settled + 1] = ARGV[i]
      held[#held + 1] = i
    else
      refused[#refused + 1] = ARGV[i + 2]
    end
  end
  return settled, held, refused
end

-- Acknowledges and deletes in one step: an entry that is settled is gone. Comes first, so that full memory cannot stop it.
local function remove_entries(lane, entries)
  redis.call('XACK', lane, 'workers', unpack(entries))
  redis.call('XDEL', lane, unpack(entries))
end
