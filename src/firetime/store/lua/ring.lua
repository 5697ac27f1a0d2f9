-- A worker that heard the bell but cannot act on it passes the news on.
local bell, paused = KEYS[1], KEYS[2]
--#include bell

ring()
return 1
