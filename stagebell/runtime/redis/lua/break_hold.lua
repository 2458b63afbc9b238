#!lua flags=allow-oom
-- Free an agent whose former owner did not finish its turn in time.
-- KEYS own hold
-- ARGV tok agent now
-- returns 1 (free now) | 0 (still held) | -1 (not the owner)
--
-- Only the present owner may: otherwise a zombie could free an agent that a third worker holds.
--@include clock
if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return -1 end
local held = redis.call('HGET', KEYS[2], ARGV[2])
if not held then return 1 end
if tonumber(string.match(held, '^(%d+)|')) > now_ms(ARGV[3]) then return 0 end
redis.call('HDEL', KEYS[2], ARGV[2])
return 1
