#!lua flags=allow-oom
-- End a turn that failed: no state of its own, no outputs; a failure as reply, and a dead letter if there is a reason.
-- KEYS own hold inbox state_or_parent run journal savepoints dlq reply_key reply_own ids ctl
-- ARGV tok agent entry_id turn_id mode place reply_mode reply_field reply reply_turn reply_tag known_replies
--      known_savepoints known_parent_savepoints reason traceback uncounted bell_head left_open_stream wish n_left k…
-- returns {'OK', version, parent's count of savepoints} | {'FENCED'} | {'DUP'} | {'STALE'} | {'BADKEY', key}
--         | {'BADARGS'}
-- Touches keys that are found only here and so not declared, as commit does.
--
-- The last savepoint becomes the state (nested: the parent's savepoint), since others have seen what the nested turns
-- did; not one that is on top of turns which have ended meanwhile. The dead letter has in_id, reason, attempts, at (ms)
-- and traceback, then the entry's own fields. Its attempts are those that failed, those whose worker died, and those
-- that the caller says nobody has counted.
-- The checks are those of commit; the state's version is not one of them, for nothing was built on it. A wish is the
-- entry of ctl by which the turn was ended ('': by none): one that the server has lost ends nothing (STALE).
-- Turn id '' is for an entry without one, or with one that is no text (m is absent, empty or not ASCII).
-- Mode 'bare', when BADKEY named another key than own, hold, inbox or reply_key, reads no other: the reply is
-- written, the input removed and the journal, if it is one, forgotten; no state, no dead letter.
--@include checks
--@include clock
--@include fence
--@include entry
--@include attempts
--@include letter
--@include bell
--@include answer
--@include hold
--@include savepoint
local mode, turn, n_left = ARGV[5], ARGV[4], tonumber(ARGV[21])
local modes, bare = {root = true, plain = true, nested = true, bare = true}, mode == 'bare'
if not modes[mode] or not n_left or not tonumber(ARGV[17]) or #ARGV ~= 21 + n_left or #KEYS ~= 12
  or (n_left > 0 and ARGV[19] == '') or (mode == 'nested' and not is_place(ARGV[6]))
  or (bare and ARGV[15] ~= '') then return {'BADARGS'} end

local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not right then return refuse({'FENCED'}) end
local input = turn == '' and entry_without_turn(KEYS[3], ARGV[3]) or entry(KEYS[3], ARGV[3], turn)
if not input then return refuse({'DUP'}) end
local parent, last, saved, v, attempts = 0, false, false, 0, 0
if not bare then
  if ARGV[20] ~= '' and not entry(KEYS[12], ARGV[20], turn) then return refuse({'STALE'}) end
  parent = mode == 'nested' and count(KEYS[4], '#n') or 0
  if count(KEYS[6], '#r') < tonumber(ARGV[12]) or count(KEYS[7], '#n') < tonumber(ARGV[13])
    or parent < tonumber(ARGV[14]) then return refuse({'STALE'}) end
  last = field(KEYS[7], 'last')
  saved = mode ~= 'plain' and last and field(KEYS[7], last)
  if saved and mode == 'root' and has_below(KEYS[7], last) then saved = false end
  if saved and mode == 'nested' and not is_open(KEYS[5], KEYS[4]) then return refuse({'STALE'}) end
  v = mode == 'root' and count(KEYS[4], 'v') or 0
  expect(KEYS[6], 'hash')
  if ARGV[15] ~= '' then expect(KEYS[8], 'stream') end
  if mode == 'root' then expect(KEYS[11], 'set') end
  attempts = attempts_of(KEYS[5], turn) + failures_of(KEYS[6]) + tonumber(ARGV[17])
end
local open, replies = open_call(ARGV[7], KEYS[9], ARGV[8], ARGV[3])
local left = {}
for i = 1, n_left do left[i] = ARGV[21 + i] end
if bad then return refuse() end

-- nothing has been written so far; nothing below can fail
if ARGV[15] ~= '' then
  redis.call('XADD', KEYS[8], '*', 'in_id', ARGV[3], 'reason', ARGV[15], 'attempts', attempts, 'at',
    string.format('%d', now_ms('')), 'traceback', ARGV[16], unpack(kept(input, {m = true, a = true, e = true})))
end
redis.call('XDEL', KEYS[3], ARGV[3])
redis.pcall('HDEL', KEYS[5], turn)
if saved and mode == 'root' then
  v = v + 1
  if v == 1 then redis.call('SADD', KEYS[11], ARGV[2]) end
  redis.call('HSET', KEYS[4], 'v', v, 'd', saved)
elseif saved then
  parent = parent + 1
  keep_savepoint(KEYS[4], ARGV[6], saved, parent)
end
if right == 'hold' then unhold(KEYS[1], KEYS[2], ARGV[2], turn, ARGV[18]) end
if not bare or redis.pcall('TYPE', KEYS[6]).ok == 'hash' then forget(KEYS[6], KEYS[7], turn, left, ARGV[19]) end
answer(ARGV[7], KEYS[9], KEYS[10], ARGV[8], ARGV[10], ARGV[11], ARGV[9], ARGV[18], open, replies)
return {'OK', tostring(v), parent}
