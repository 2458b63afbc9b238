#!lua flags=allow-oom
-- The side that asked gives a message up: its deadline is over, or it was cancelled.
-- KEYS own hold journal inbox dest_own dest_ctl marker ctl later
-- ARGV mode tok agent k failure entry_id turn_id why bell_head dest_tag caller_turn wish
-- returns 1 (given up) | 0 (answered or consumed before, or never sent) | -1 (fenced, or the wish is lost)
-- Rings the bell of the callee's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- mode journal: the caller is a turn (own, hold, tok, agent are its own), its open call k gets the failure as its
-- recorded reply; stream: whoever asked is outside of all turns, or waits for nothing. Reply, time-out and cancel race
-- to one winner. While the request is in the inbox, ctl tells its owner, the present one or the next, to end it: an
-- entry stays there until the request is consumed. Entry id '': the one that the journal, or the marker, names. When
-- the caller's turn is itself ended by an entry of its ctl, that is the wish: one that the server lost ends no call.
-- A request that was consumed, and whose reply was put off, has a mark: what that says is to be told then, is told to
-- the callee (its envelope says to whom), and the mark goes with that.
--@include checks
--@include fence
--@include entry
--@include bell

-- word_of(mark): the envelope of what the callee is told, and to whom that goes; nothing when it wants to hear nothing
local function word_of(mark)
  local read, described = pcall(cjson.decode, mark or '')
  if not read or type(described) ~= 'table' or type(described.given_up) ~= 'string' then return false end
  return described.given_up, described.to
end

local journalled, id, turn = ARGV[1] == 'journal', ARGV[6], ARGV[7]
local call = journalled and field(KEYS[3], ARGV[4]) or ''
local replies = journalled and count(KEYS[3], '#r')
local state, right = string.sub(call, 1, 1), true -- 'F': its turn has ended, the caller waits outside of it
if state == 'S' then
  id, right = string.match(call, '^[^ ]*', 10), standing(KEYS[1], KEYS[2], ARGV[2], ARGV[3])
elseif not journalled and id == '' then
  local sent = redis.pcall('GET', KEYS[7])
  id = type(sent) == 'string' and sent or ''
end
local input = id ~= '' and entry(KEYS[4], id, turn)
local word, to = word_of(not input and field(KEYS[9], turn))
expect(KEYS[4], 'stream')
expect(KEYS[6], 'stream')
if journalled and ARGV[12] ~= '' and not entry(KEYS[8], ARGV[12], ARGV[11]) then right = false end
if bad then return redis.error_reply('BADKEY ' .. bad) end
if not right then return -1 end
if journalled and state ~= 'S' and state ~= 'F' or not journalled and not (input or word) then return 0 end

-- nothing has been written so far; nothing below can fail
if state == 'S' then
  redis.call('HSET', KEYS[3], ARGV[4], 'R' .. string.sub(call, 2, 9) .. ARGV[5], '#r', replies + 1)
elseif state == 'F' then
  redis.call('HDEL', KEYS[3], ARGV[4])
end
if input then
  local told = redis.call('XADD', KEYS[6], '*', 'm', turn, 'i', id, 'w', ARGV[8])
  local owner = owner_of(KEYS[5])
  if owner then ring(ARGV[9], owner, '', 'k', 'end', 'p', ARGV[10], 'c', told, 'm', turn, 'i', id, 'w', ARGV[8]) end
end
if word then
  redis.call('HDEL', KEYS[9], turn)
  deliver(KEYS[4], KEYS[5], ARGV[9], ARGV[10], turn .. '~', to, word)
end
return 1
