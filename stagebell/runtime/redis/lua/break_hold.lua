#!lua flags=allow-oom
-- Free an agent whose former owner did not finish its turn in time.
-- KEYS own hold
-- ARGV tok agent gone now
-- returns 1 (free now) | 0 (still held) | -1 (not the owner)
--
-- With gone = '1' the former owner is not alive any more, and its time is not waited for.
-- Only the present owner may: otherwise a zombie could free an agent that a third worker holds.
--@include clock
if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return -1 end
local held = redis.call('HGET', KEYS[2], ARGV[2])
if not held then return 1 end
if ARGV[3] ~= '1' and tonumber(string.match(held, '^(%d+)|')) > now_ms(ARGV[4]) then return 0 end
redis.call('HDEL', KEYS[2], ARGV[2])
return 1
