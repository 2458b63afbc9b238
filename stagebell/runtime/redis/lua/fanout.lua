#!lua flags=allow-oom
-- Turn one outside event into a message for each subscriber, or set it aside.
-- KEYS own hold events run dlq reg, then per destination: inbox own
-- ARGV tok entry_id digest reason registry_version bell_head after, then per destination:
--      tag turn_id agent envelope cap
-- returns {'OK'} | {'FENCED'} | {'GONE'} | {'STALE_REGISTRY', version} | {'BUSY', key} | {'BADKEY', key} | {'BADARGS'}
-- Rings the bell of each inbox's owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- With a reason ('' = deliver) there are no destinations and the event goes to the dead letters, with in_id, reason
-- and at (ms). FENCED and GONE keep an event from being delivered twice, by a zombie or after a lost reply.
-- The digest, SHA-1 over the fields with a zero byte in between, tells it from another event that a server which went
-- back has given its id.
-- BUSY: an inbox holds `cap` messages (0: no limit), or the event `after` ('': none) is still there, which was refused.
--@include checks
--@include clock
--@include fence
--@include letter
--@include bell
local KNOWN = {type = true, topic = true, id = true, data = true, datacontenttype = true, e = true}
local n = (#KEYS - 6) / 2
local reason = ARGV[4]
if #ARGV ~= 7 + 5 * n or (reason ~= '' and n > 0) then return {'BADARGS'} end
if not standing(KEYS[1], KEYS[2], ARGV[1], '') then return refuse({'FENCED'}) end
expect(KEYS[3], 'stream')
expect(KEYS[4], 'hash')
expect(KEYS[5], 'stream')
if bad then return refuse() end
local event = redis.call('XRANGE', KEYS[3], ARGV[2], ARGV[2])[1]
if not event then return {'GONE'} end
if redis.sha1hex(table.concat(event[2], '\0')) ~= ARGV[3] then return {'GONE'} end
local version = ARGV[5] ~= '' and (field(KEYS[6], 'v') or '0') or ''
if version ~= ARGV[5] then return refuse({'STALE_REGISTRY', version}) end
for i = 7, #KEYS, 2 do expect(KEYS[i], 'stream') end
if bad then return refuse() end
if ARGV[7] ~= '' and redis.call('XRANGE', KEYS[3], ARGV[7], ARGV[7])[1] then return {'BUSY', KEYS[3]} end
for i = 1, n do
  local inbox, cap = KEYS[5 + 2 * i], tonumber(ARGV[7 + 5 * i])
  if not cap then return {'BADARGS'} end
  if cap > 0 and redis.call('XLEN', inbox) >= cap then return {'BUSY', inbox} end
end

-- nothing has been written so far; nothing below can fail
if reason ~= '' then
  redis.call('XADD', KEYS[5], '*', 'in_id', ARGV[2], 'reason', reason, 'at', string.format('%d', now_ms('')),
    unpack(kept(event[2], KNOWN)))
end
redis.call('XDEL', KEYS[3], ARGV[2])
redis.call('HDEL', KEYS[4], ARGV[2])
for i = 1, n do
  local key, a = 5 + 2 * i, 3 + 5 * i
  deliver(KEYS[key], KEYS[key + 1], ARGV[6], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end
return {'OK'}
