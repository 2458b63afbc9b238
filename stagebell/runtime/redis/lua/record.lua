#!lua flags=allow-oom
-- Keep a value with a turn, the first one under each name; or say which one is kept.
-- KEYS own hold inbox journal savepoints state
-- ARGV tok agent entry_id turn_id name value nonce known_replies known_savepoints state_version
-- returns {'KEPT'} | {'KNOWN', value} | {'FENCED'} | {'DUP'} | {'STALE'} | {'BADKEY', key}
--
-- Field 'x:' + name of the journal: nonce, a blank, the value; it ends with the journal. The nonce is new each time
-- somebody asks: one that asks again, since the answer was lost, is told that its value is kept.
-- What is kept here may be the ground of an effect outside, so the checks are those of a call. FENCED: a zombie. DUP:
-- the input is gone. STALE: the server lost writes, or the state is not the one the turn began with (version '': do
-- not check).
--@include checks
--@include fence
--@include entry
local journal, name = KEYS[4], 'x:' .. ARGV[5]
if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end
if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end
local r, n = count(journal, '#r'), count(KEYS[5], '#n')
if r < tonumber(ARGV[8]) or n < tonumber(ARGV[9]) then return refuse({'STALE'}) end
if ARGV[10] ~= '' and (field(KEYS[6], 'v') or '0') ~= ARGV[10] then return refuse({'STALE'}) end
local known = field(journal, name)
if bad then return refuse() end
if known then
  local nonce, value = string.match(known, '^(%S*) (.*)$')
  return nonce == ARGV[7] and {'KEPT'} or {'KNOWN', value}
end

-- nothing has been written so far; nothing below can fail
redis.call('HSET', journal, name, ARGV[7] .. ' ' .. ARGV[6])
redis.call('PERSIST', journal) -- calls that an earlier message of this id left open may be in it, and end by themselves
return {'KEPT'}
