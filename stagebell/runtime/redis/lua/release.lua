#!lua flags=allow-oom
-- Give a partition up without waiting for its running turns.
-- KEYS own hold
-- ARGV tok hold_ms now, then per turn: agent turn_id
-- returns 1 | 0 (not the owner, or released before)
--
-- Each agent with a running turn stays held by the old token, which may still commit for it; the new owner skips
-- it until then, or until hold_ms are over. Two turns of one agent never overlap.
--@include clock
if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return 0 end
local ends, turns = string.format('%d', now_ms(ARGV[3]) + tonumber(ARGV[2])), {}
for i = 4, #ARGV, 2 do
  local agent = ARGV[i]
  turns[agent] = turns[agent] and turns[agent] .. ',' .. ARGV[i + 1] or ARGV[i + 1]
  redis.call('HSET', KEYS[2], agent, ends .. '|' .. ARGV[1] .. '|' .. turns[agent])
end
redis.call('HSET', KEYS[1], 'owner', '', 'until', 0, 'tok', 'released:' .. ARGV[1])
return 1
