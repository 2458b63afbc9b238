#!lua flags=allow-oom
-- Start a turn: count the attempt. May be pipelined ahead of the handler without waiting.
-- KEYS own hold run inbox
-- ARGV tok agent entry_id turn_id
-- returns attempts, from 1 | 0 (the input is gone) | -1 (fenced)
--
-- The count is what tells a message that kills its worker from its neighbours, which were not started.
--@include checks
--@include fence
--@include entry
local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
local input = right and entry(KEYS[4], ARGV[3], ARGV[4])
if bad then return redis.error_reply('BADKEY ' .. bad) end
if not right then return -1 end
if not input then return 0 end
return redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
