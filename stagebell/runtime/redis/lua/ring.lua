#!lua flags=allow-oom
-- Ring the bell of whoever owns a partition now, to tell it something about one of its messages.
-- KEYS own
-- ARGV bell_head kind tag entry_id turn_id payload
-- returns 1 (rung) | 0 (nobody owns it)
-- Writes to bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- A hint that may be lost: whoever needs an answer rings again.
--@include bell
local owner = owner_of(KEYS[1])
if not owner then return 0 end
ring(ARGV[1], owner, ARGV[6], 'k', ARGV[2], 'p', ARGV[3], 'i', ARGV[4], 'm', ARGV[5])
return 1
