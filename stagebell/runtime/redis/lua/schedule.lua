#!lua
-- Set a timer from outside of all turns, or replace the one of the same name.
-- KEYS due messages marker own reg
-- ARGV registry_version window_ms bell_head tag timer when message now
-- returns {'OK', due} | {'STALE_REGISTRY', version} | {'BADKEY', key} | {'BADARGS'}
-- Rings the bell of the owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- The marker keeps what was answered for window_ms: a request repeated after a lost reply sets one timer. Without
-- allow-oom, so a full server refuses it before it starts.
--@include checks
--@include clock
--@include bell
--@include timers
if #ARGV ~= 8 or not tonumber(ARGV[6]) or not tonumber(ARGV[2]) then return {'BADARGS'} end
local known = redis.pcall('GET', KEYS[3])
if type(known) == 'table' then bad = KEYS[3] end
local version = ARGV[1] ~= '' and (field(KEYS[5], 'v') or '0') or ''
expect(KEYS[1], 'zset')
expect(KEYS[2], 'hash')
if bad then return refuse() end
if known then return {'OK', known} end
if version ~= ARGV[1] then return {'STALE_REGISTRY', version} end

-- nothing has been written so far; nothing below can fail
local at = due_at(ARGV[6], now_ms(ARGV[8]))
set_timer(KEYS[1], KEYS[2], ARGV[5], at, ARGV[7])
local due = string.format('%d', at)
redis.call('SET', KEYS[3], due, 'PX', ARGV[2])
local owner = owner_of(KEYS[4])
if owner then ring(ARGV[3], owner, '', 'k', 'due', 'p', ARGV[4]) end
return {'OK', due}
