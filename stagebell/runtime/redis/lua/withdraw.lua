#!lua flags=allow-oom
-- Take a call back that nobody has answered, and answer it with a failure.
-- KEYS inbox run journal callee_journal callee_savepoints
-- ARGV mode entry_id turn_id k failure
-- returns 1 (withdrawn) | 0 (answered already, or the request is gone)
--
-- mode journal: the caller is a turn, its open call k gets the failure as its recorded reply; stream: the caller is
-- outside of all turns and answers itself. Reply and withdrawal race to one winner: whoever finds both the request
-- in the inbox and the call open. A callee that runs it all the same finds its input gone and cannot commit; what one
-- that died had noted down goes with the request.
--@include checks
--@include entry
local journalled = ARGV[1] == 'journal'
local input = entry(KEYS[1], ARGV[2], ARGV[3])
local call = journalled and field(KEYS[3], ARGV[4]) or ''
local replies = journalled and count(KEYS[3], '#r')
expect(KEYS[2], 'hash')
if bad then return redis.error_reply('BADKEY ' .. bad) end
if not input or (journalled and string.sub(call, 1, 1) ~= 'S') then return 0 end
redis.call('XDEL', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[3])
redis.call('DEL', KEYS[4], KEYS[5])
if journalled then
  redis.call('HSET', KEYS[3], ARGV[4], 'R' .. string.sub(call, 2, 9) .. ARGV[5], '#r', replies + 1)
end
return 1
