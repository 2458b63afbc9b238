#!lua flags=allow-oom
-- End a turn: state, removal of the input, reply and outputs change together or not at all.
-- KEYS own hold inbox state run journal savepoints ids_or_parent reply_key reply_own reg, then per output: inbox own
-- ARGV tok agent entry_id turn_id mode version state place reply_mode reply_field reply reply_turn reply_tag
--      known_replies known_savepoints known_parent_savepoints registry_version bell_head left_open_stream n_left k…
--      n_outputs, then per output: tag turn_id agent envelope
-- returns {'OK', version} | {'FENCED'} | {'DUP', version} | {'STALE', version} | {'STALE_REGISTRY', version}
--         | {'BADKEY', key} | {'BADARGS'}
-- Touches keys that are found only here and so not declared: bells (bell_head..owner..'}:bell'), and the streams of
-- workers that wait for calls left open (named by an argument or by the caller's journal).
-- An output is a message, or by the first character of its tag one of the effects of lib/effects.
--
-- mode root: the agent's state is checked and written; plain: an agent without state, nothing checked or written;
-- nested: the state goes to the parent turn's savepoint `field`, version '' = do not check. State '' = unchanged.
-- FENCED: a zombie, or an agent that a former owner still holds. DUP: the input is gone, by an earlier commit or
-- because the server lost it. STALE: memory is behind the state, or the store behind memory, or an effect was had by
-- another turn, or the parent has ended. Version of an agent = number of its root commits.
--@include checks
--@include clock
--@include fence
--@include entry
--@include bell
--@include answer
--@include hold
--@include timers
--@include effects
--@include savepoint
--@each
local mode, turn, n_left = ARGV[5], ARGV[4], tonumber(ARGV[20])
local n_out = n_left and tonumber(ARGV[21 + n_left])
local modes = {root = ARGV[6] ~= '', plain = true, nested = true}
if not modes[mode] or not n_out or #ARGV ~= 21 + n_left + 4 * n_out or #KEYS ~= 11 + 2 * n_out
  or (n_left > 0 and ARGV[19] == '') or (mode == 'nested' and not is_place(ARGV[8])) then return {'BADARGS'} end

local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not right then return refuse({'FENCED'}) end
local v = mode == 'plain' and '0' or field(KEYS[4], 'v') or '0'
if not entry(KEYS[3], ARGV[3], turn) then return refuse({'DUP', v}) end
if mode ~= 'plain' and ARGV[6] ~= '' and v ~= ARGV[6] then return refuse({'STALE', v}) end
if mode == 'nested' and not is_open(KEYS[5], KEYS[8]) then return refuse({'STALE', v}) end
local parent = mode == 'nested' and count(KEYS[8], '#n') or 0
local kept = redis.call('EXISTS', KEYS[6], KEYS[7]) > 0 -- most turns have neither a journal nor savepoints
local own = kept and count(KEYS[7], '#n') or 0
if own > 0 and ARGV[15] == '-1' then return refuse({'UNSEEN', v}) end
if (kept and count(KEYS[6], '#r') or 0) < tonumber(ARGV[14]) or own < tonumber(ARGV[15])
  or parent < tonumber(ARGV[16]) then return refuse({'STALE', v}) end
local version = ARGV[17] ~= '' and version_of(KEYS[11]) or ''
if version ~= ARGV[17] then return refuse({'STALE_REGISTRY', version}) end
if mode == 'root' and v == '0' then expect(KEYS[8], 'set') end
local begun = field(KEYS[5], turn)
local open, replies = open_call(ARGV[9], KEYS[9], ARGV[10], ARGV[3])
for i = 1, n_out do
  local key, a = 10 + 2 * i, 18 + n_left + 4 * i
  if not is_effect(ARGV[a]) then
    expect(KEYS[key], 'stream')
  elseif not may_happen(KEYS[key], KEYS[key + 1], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]) then
    return refuse({'STALE', v})
  end
end
local left = {}
for i = 1, n_left do left[i] = ARGV[20 + i] end
if bad then return refuse() end

-- nothing has been written so far; nothing below can fail
redis.call('XDEL', KEYS[3], ARGV[3])
if begun then redis.call('HDEL', KEYS[5], turn) end
if mode == 'root' then
  v = tostring(tonumber(v) + 1)
  if v == '1' then redis.call('SADD', KEYS[8], ARGV[2]) end
  redis.call('HSET', KEYS[4], 'v', v, unpack(ARGV[7] ~= '' and {'d', ARGV[7]} or {}))
elseif mode == 'nested' then
  if ARGV[7] ~= '' then keep_savepoint(KEYS[8], ARGV[8], ARGV[7], parent + 1)
  else redis.call('HSET', KEYS[8], '#n', parent + 1) end
end
if right == 'hold' then unhold(KEYS[1], KEYS[2], ARGV[2], turn, ARGV[18]) end
if kept then forget(KEYS[6], KEYS[7], turn, left, ARGV[19]) end
answer(ARGV[9], KEYS[9], KEYS[10], ARGV[10], ARGV[12], ARGV[13], ARGV[11], ARGV[18], open, replies)
for i = 1, n_out do
  local key, a = 10 + 2 * i, 18 + n_left + 4 * i
  local put = is_effect(ARGV[a]) and happen or deliver
  put(KEYS[key], KEYS[key + 1], ARGV[18], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end
return {'OK', v}
