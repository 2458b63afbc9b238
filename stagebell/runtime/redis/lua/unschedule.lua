#!lua flags=allow-oom
-- Cancel a timer from outside of all turns.
-- KEYS due messages
-- ARGV timer
-- returns 1 (it was still to come) | 0 (there is none)
--@include checks
--@include timers
expect(KEYS[1], 'zset')
expect(KEYS[2], 'hash')
if bad then return redis.error_reply('BADKEY ' .. bad) end
-- nothing has been written so far; nothing below can fail
return drop_timer(KEYS[1], KEYS[2], ARGV[1])
