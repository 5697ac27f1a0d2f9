-- A call that must not act twice is numbered by its sender. The last number and its reply are kept: a repeat is answered
-- from memory, a lower number is a straggler and refused. (The idea of Kafka's idempotent producer.)
local function recalled()
  local last = redis.call('GET', call)
  if not last then return nil end
  local number_then, reply = last:match('^(%d+) (.*)$')
  number_then = tonumber(number_then)
  if number_then == tonumber(number) then
    redis.call('PEXPIRE', call, 600000) -- a write: a WAIT that follows counts from it on
    return cjson.decode(reply)
  end
  if number_then > tonumber(number) then
    return redis.error_reply('STALECALL number ' .. number .. ' comes after ' .. number_then)
  end
  return nil
end

local function remember(reply)
  redis.call('SET', call, number .. ' ' .. (#reply == 0 and '[]' or cjson.encode(reply)), 'PX', 600000)
  return reply
end
