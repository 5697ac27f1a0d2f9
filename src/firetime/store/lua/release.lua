-- Edge: running -> ready
-- Gives deliveries back, to be run by whoever comes first. From ARGV[3] on, 5 values each: entry, deliveries, id, "1" when
-- user code saw it, fire-time in ms (0: it was ready at once). A new entry counts deliveries anew, so what this one
-- counted moves into the state: every delivery but the present one was a crash.
-- Returns the ids refused because the fence no longer holds.
local high, normal, low, state, places, bell, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local consumer, letter = ARGV[1], ARGV[2]
--#include fence lanes bell sound

local lane = lanes[letter]
local settled, held, refused = sort_out(lane, consumer, 5, 3, #ARGV)
if #settled == 0 then return { refused } end
check_hashes(state, places)
remove_entries(lane, settled)

local standing = {}
for _, i in ipairs(held) do
  local id, deliveries = ARGV[i + 2], tonumber(ARGV[i + 1])
  if deliveries > 1 or ARGV[i + 3] == '1' then
    local crashes, delivered, notes = (redis.call('HGET', state, id) or '0 0 {}'):match('^(%d+) (%d+) (.*)$')
    if notes then
      redis.call('HSET', state, id, string.format('%d %d ', crashes + deliveries - 1, delivered + deliveries) .. notes)
    end
  end
  local n = #standing
  standing[n + 1], standing[n + 2] = id, enter(letter, id, ARGV[i + 4] ~= '0' and ARGV[i + 4])
end
redis.call('HSET', places, unpack(standing))
ring()
return { refused }
