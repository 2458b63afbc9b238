#!lua flags=allow-oom
-- Start a turn: count the attempt. May be pipelined ahead of the handler without waiting.
-- KEYS own hold run inbox
-- ARGV tok agent entry_id turn_id
-- returns attempts, from 1 | 0 (the input is gone) | -1 (fenced)
--
-- The count is what tells a message that kills its worker from its neighbours, which were not started. It is kept as
-- 'count:token': a grant counts once, however often it asks, since its worker can die but once.
--@include checks
--@include fence
--@include entry
--@include attempts
local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
local input = right and entry(KEYS[4], ARGV[3], ARGV[4])
local attempts, token = attempts_of(KEYS[3], ARGV[4])
if bad then return redis.error_reply('BADKEY ' .. bad) end
if not right then return -1 end
if not input then return 0 end
if token ~= ARGV[1] then
  attempts = attempts + 1
  redis.call('HSET', KEYS[3], ARGV[4], attempts .. ':' .. ARGV[1])
end
return attempts
