-- A group is a hash: the id of each member that is not done, and under the empty name what follows when all are done: lane
-- letter, id and record of the callback; empty while not all members have been sent.
local function follow(group)
  if redis.call('HLEN', group) ~= 1 then return false end
  local letter, id, record = (redis.call('HGET', group, '') or ''):match('^([hnl])(%S+) (.*)$')
  if not letter then return false end
  redis.call('DEL', group)
  redis.call('HSET', tasks, id, record)
  redis.call('HSET', places, id, enter(letter, id))
  return true
end

-- Takes out a member that is done; true when it was the last one, and the callback has entered its lane.
local function join(group, id)
  return redis.call('HDEL', group, id) == 1 and follow(group)
end
