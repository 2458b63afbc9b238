#!lua flags=allow-oom
-- Send a call from inside a turn, exactly once per turn and k; or say what became of it.
-- KEYS own hold journal run savepoints dest_inbox dest_own reg state
-- ARGV tok agent turn_id k known_replies known_savepoints digest registry_version bell_head dest_tag callee_turn_id
--      callee_agent envelope state_version
-- returns {'SENT' | 'PENDING', replies, savepoints, entry id}
--         | {'REPLY', replies, savepoints, reply} | {'FENCED'} | {'GONE'} | {'STALE'}
--         | {'CHANGED', digest} | {'STALE_REGISTRY', version} | {'BADKEY', key} | {'BADARGS'}
-- Rings the bell of the callee's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- Field k of the journal: 'S' + digest (8 characters) + entry id, callee's turn id and tag while open, 'R' + digest +
-- reply once answered; '#r' counts the replies. The count of savepoints tells a turn that runs again that it has
-- some to see.
-- FENCED: a zombie must not call. GONE: no effect may leave a turn whose input is consumed, its journal is deleted
-- and would let the call out twice. STALE: the server lost writes: the store is behind the turn's memory, or the
-- state is not the one the turn began with (version '': do not check).
-- CHANGED: the turn ran again and made another call in this place.
--@include checks
--@include fence
--@include bell
if #ARGV ~= 14 or #ARGV[7] ~= 8 then return {'BADARGS'} end
local journal, savepoints, k = KEYS[3], KEYS[5], ARGV[4]
if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end
if not field(KEYS[4], ARGV[3]) then return refuse({'GONE'}) end
local r, n = count(journal, '#r'), count(savepoints, '#n')
if r < tonumber(ARGV[5]) or n < tonumber(ARGV[6]) then return refuse({'STALE'}) end
if ARGV[14] ~= '' and (field(KEYS[9], 'v') or '0') ~= ARGV[14] then return refuse({'STALE'}) end

local call = field(journal, k) or ''
local state, digest = string.sub(call, 1, 1), string.sub(call, 2, 9)
if state == 'S' or state == 'R' then
  if digest ~= ARGV[7] then return refuse({'CHANGED', digest}) end
  local found = state == 'S' and string.match(call, '^[^ ]*', 10) or string.sub(call, 10)
  return refuse({state == 'S' and 'PENDING' or 'REPLY', r, n, found})
end

local version = ARGV[8] ~= '' and (field(KEYS[8], 'v') or '0') or ''
if version ~= ARGV[8] then return refuse({'STALE_REGISTRY', version}) end
expect(KEYS[6], 'stream')
if bad then return refuse() end
-- nothing has been written so far; nothing below can fail
local id = deliver(KEYS[6], KEYS[7], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13])
redis.call('HSET', journal, k, 'S' .. ARGV[7] .. id .. ' ' .. ARGV[11] .. ' ' .. ARGV[10])
if state == 'F' then redis.call('PERSIST', journal) end -- left by an earlier message of this id; now it is ours
return {'SENT', r, n, id}
