#!lua
-- Accept a message from outside of all turns, for each of its recipients, or for none.
-- KEYS reg, then per destination: inbox marker own, then per destination: after
-- ARGV registry_version window_ms cap bell_head, then per destination: tag turn_id agent envelope
-- returns {'OK', entry id per destination…} | {'STALE_REGISTRY', version}
--         | {'BUSY', number of the destination, length} | {'BADKEY', key} | {'BADARGS'}
-- Rings the bell of each inbox's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- The marker keeps the entry's id for window_ms: a send repeated after a lost reply is one message (window 0: no
-- marker). The registry's version tells that the recipients were found by subscriptions that still hold ('': do
-- not check). The cap (0: none) refuses what would make an inbox longer than that. Without allow-oom, so a full
-- server refuses it before it starts, while commits go on and drain the inboxes. The keys `after` may be left out
-- all together: each is the marker of a message that must have been accepted before this one (or its own: of none),
-- else a sender that does not wait for answers could see the second taken when the first was refused.
--@include checks
--@include bell
local accepted = {} -- by marker: what this command has added
--@each
local n = (#ARGV - 4) / 4
local window, cap = ARGV[2], tonumber(ARGV[3])
if (#KEYS ~= 1 + 3 * n and #KEYS ~= 1 + 4 * n) or not tonumber(window) or not cap then return {'BADARGS'} end
local version = ARGV[1] ~= '' and version_of(KEYS[1]) or ''
if version ~= ARGV[1] then return refuse({'STALE_REGISTRY', version}) end

local ids, more, empty = {}, {}, {}
for i = 1, n do
  local inbox, marker = KEYS[3 * i - 1], KEYS[3 * i]
  local waiting = length(inbox)
  empty[inbox] = waiting == 0
  if window ~= '0' then
    local known = redis.pcall('GET', marker)
    if type(known) == 'table' then bad = bad or marker end
    ids[marker] = known
  end
  if bad then return refuse() end
  local after = KEYS[1 + 3 * n + i] or marker
  if after ~= marker and not ids[marker] and not ids[after] then
    if not accepted[after] and not redis.pcall('GET', after) then return {'BUSY', i, waiting} end
  end
  if cap > 0 and not ids[marker] then
    waiting = waiting + (more[inbox] or 0)
    if waiting >= cap then return {'BUSY', i, waiting} end
    more[inbox] = (more[inbox] or 0) + 1
  end
end

-- nothing has been written so far; nothing below can fail
local answer = {'OK'}
for i = 1, n do
  local inbox, marker, own, a = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1], 1 + 4 * i
  local id = ids[marker]
  if not id then
    id = deliver(inbox, own, ARGV[4], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], empty[inbox])
    lengths[inbox] = lengths[inbox] + 1
    if window ~= '0' then
      redis.call('SET', marker, id, 'PX', window)
      ids[marker], accepted[marker] = id, true
    end
  end
  answer[1 + i] = id
end
return answer
