-- Counters come summed up by the worker: `counted` pairs of field and increment, from ARGV[first_counter] on.
local function count_metrics(first_counter)
  for i = first_counter, first_counter + 2 * counted - 2, 2 do
    redis.pcall('HINCRBY', metrics, ARGV[i], ARGV[i + 1])
  end
  return first_counter + 2 * counted
end
