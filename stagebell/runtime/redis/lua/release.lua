#!lua flags=allow-oom
-- Give a partition up without waiting for its running turns.
-- KEYS own hold
-- ARGV tok hold_ms now agent…
-- returns 1 | 0 (not the owner, or released before)
--
-- Each agent with a running turn stays held by the old token, which may still commit for it; the new owner skips
-- it until then, or until hold_ms are over. Two turns of one agent never overlap.
--@include clock
if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return 0 end
local mark = string.format('%d|%s', now_ms(ARGV[3]) + tonumber(ARGV[2]), ARGV[1])
for i = 4, #ARGV do redis.call('HSET', KEYS[2], ARGV[i], mark) end
redis.call('HSET', KEYS[1], 'owner', '', 'until', 0, 'tok', 'released:' .. ARGV[1])
return 1
