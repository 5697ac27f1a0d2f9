-- Opens a paused queue again and tells a worker. Returns 1 when it was paused.
local paused, bell = KEYS[1], KEYS[2]
--#include bell

local was_paused = redis.call('DEL', paused)
ring()
return was_paused
