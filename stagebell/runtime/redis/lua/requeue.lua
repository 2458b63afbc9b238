#!lua flags=allow-oom
-- Put a dead letter back into an inbox, as a message that has not been tried.
-- KEYS dlq inbox marker own
-- ARGV letter_id window_ms bell_head tag turn_id agent envelope
-- returns {'OK', entry id} | {'GONE'} | {'BADKEY', key}
-- Rings the bell of the inbox's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- The turn id is made of the letter's: the marker keeps the entry's id for window_ms, so a request repeated after a
-- lost reply is one message. GONE: somebody else has requeued or discarded it.
--@include checks
--@include letter
--@include bell
local known = marked(KEYS[3])
local found = letter(KEYS[1], ARGV[1])
expect(KEYS[2], 'stream')
if bad then return refuse() end
if known then return {'OK', known} end
if not found then return {'GONE'} end

-- nothing has been written so far; nothing below can fail
redis.call('XDEL', KEYS[1], ARGV[1])
local id = deliver(KEYS[2], KEYS[4], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
redis.call('SET', KEYS[3], id, 'PX', ARGV[2])
return {'OK', id}
