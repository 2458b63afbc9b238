#!lua flags=allow-oom
-- Put an outside event that was set aside back into the stream of events, with the fields it came with.
-- KEYS dlq events marker
-- ARGV letter_id window_ms
-- returns {'OK', entry id} | {'GONE'} | {'BADKEY', key}
--
-- The marker does what that of `requeue` does. The first three fields of the letter are those that fanout has added.
--@include checks
--@include letter
local known = marked(KEYS[3])
local found = letter(KEYS[1], ARGV[1])
expect(KEYS[2], 'stream')
if bad then return refuse() end
if known then return {'OK', known} end
if not found or #found < 8 then return {'GONE'} end

-- nothing has been written so far; nothing below can fail
redis.call('XDEL', KEYS[1], ARGV[1])
local id = redis.call('XADD', KEYS[2], '*', unpack(found, 7))
redis.call('SET', KEYS[3], id, 'PX', ARGV[2])
return {'OK', id}
