#!lua flags=no-writes
-- When the earliest timer of each of these partitions is due.
-- KEYS due…
-- ARGV now
-- returns {now, then for each key: its earliest time, or -1 without a timer}
--
-- It spans partitions, as `idle` does, and only reads: a worker asks for all it owns at once.
--@include clock
local answer = {string.format('%d', now_ms(ARGV[1]))}
for i = 1, #KEYS do
  local first = redis.pcall('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')
  answer[1 + i] = first[2] or '-1' -- of another type: the owner meets it when it looks closer
end
return answer
