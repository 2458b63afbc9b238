#!lua flags=allow-oom
-- A worker is known to have died: end its lease now, so that nobody has to wait for that.
-- KEYS own
-- ARGV worker bell_head tag heir…
-- returns 1 | 0 (another worker owns it, or nobody does)
-- Rings the bells of the heirs: bell_head..heir..'}:bell', keys known only here and so not declared.
--
-- Its token stays: what it has sent is dealt with as before until the next grant, and whoever gets that is told
-- (`prev`) that nothing was released in order.
--@include bell
if owner_of(KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'until', 0)
for i = 4, #ARGV do ring(ARGV[2], ARGV[i], '', 'k', 'free', 'p', ARGV[3], 'w', 'stop', 'o', ARGV[1]) end
return 1
