#!lua flags=allow-oom
-- Prolong a lease.
-- KEYS own
-- ARGV tok ttl_ms now
-- returns 1 | 0 (another owner, or released)
--
-- An expired lease that nobody took may be renewed: the fence is the token, never the clock.
--@include clock
if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'until', now_ms(ARGV[3]) + tonumber(ARGV[2]))
return 1
