#!lua flags=allow-oom
-- Give up the hold of a turn that ended without a commit, so that the new owner runs its message again at once.
-- KEYS own hold
-- ARGV tok agent turn_id bell_head
-- returns 1 | 0 (the agent is not held by this token)
-- Rings the bell of the partition's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--@include checks
--@include fence
--@include bell
--@include hold
local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if bad then return redis.error_reply('BADKEY ' .. bad) end
if right ~= 'hold' then return 0 end
unhold(KEYS[1], KEYS[2], ARGV[2], ARGV[3], ARGV[4])
return 1
