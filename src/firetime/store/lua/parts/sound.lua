-- Keys that are not what they should be: to be met while nothing is written yet, for what was taken out of one key and could
-- not be put into the next would be lost.
local function check_hashes(...)
  for _, key in ipairs({ ... }) do redis.call('HLEN', key) end
end
