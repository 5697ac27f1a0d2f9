-- A message enters a lane: its id becomes a stream entry, and its place names that entry.
local lanes = { h = high, n = normal, l = low }

local function enter(letter, id, fire_ms)
  local entry
  if fire_ms then
    entry = redis.call('XADD', lanes[letter], '*', 'i', id, 'f', fire_ms)
  else
    entry = redis.call('XADD', lanes[letter], '*', 'i', id)
  end
  return letter .. entry
end

-- A lane that is no stream must be met before anything was taken out of where it stood.
local function check_lanes()
  for _, lane in pairs(lanes) do redis.call('XLEN', lane) end
end
