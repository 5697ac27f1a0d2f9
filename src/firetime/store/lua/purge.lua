-- Edge: dead -> none
-- Deletes dead letters for good; ids from ARGV[1] on. Returns how many there were.
local tasks, state, dead = KEYS[1], KEYS[2], KEYS[3]

local purged = 0
for _, id in ipairs(ARGV) do
  if redis.call('ZREM', dead, id) == 1 then
    redis.call('HDEL', tasks, id)
    redis.call('HDEL', state, id)
    purged = purged + 1
  end
end
return purged
