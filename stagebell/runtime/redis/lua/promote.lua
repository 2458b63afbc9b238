#!lua flags=allow-oom
-- A timer is due: its message goes into the inbox, and the timer to its next time, or away.
-- KEYS own due messages inbox
-- ARGV tok bell_head tag timer when nonce turn_id agent envelope now
-- returns {'OK', when it is due next, 0 for never} | {'FENCED'} | {'GONE'} | {'BADKEY', key} | {'BADARGS'}
-- Rings the bell of the owner: bell_head..owner..'}:bell', a key known only here and so not declared.
--
-- GONE: the timer is not, or no longer, due at `when` with the message of this nonce: it was promoted, cancelled or
-- replaced meanwhile. Times that have passed by now are left out: many missed ones are one. Without an agent it is a
-- publish, and the inbox is the stream of events, whose fan-out finds the subscribers.
--@include checks
--@include clock
--@include bell
--@include timers
if #ARGV ~= 10 or not tonumber(ARGV[5]) then return {'BADARGS'} end
local timer, agent = ARGV[4], ARGV[8]
local token = field(KEYS[1], 'tok')
local message = field(KEYS[3], timer)
expect(KEYS[2], 'zset')
expect(KEYS[4], 'stream')
if bad then return refuse() end
if token ~= ARGV[1] then return {'FENCED'} end
local at = redis.call('ZSCORE', KEYS[2], timer)
if not at or tonumber(at) ~= tonumber(ARGV[5]) or string.match(message or '', '^[^|]*') ~= ARGV[6] then
  return {'GONE'}
end
local now = now_ms(ARGV[10])
local every = tonumber(string.match(message or '', '^[^|]*|(%d+)|') or '0')

-- nothing has been written so far; nothing below can fail
local following = 0
if every > 0 then
  following = at + every * (math.floor(math.max(0, now - at) / every) + 1)
  redis.call('ZADD', KEYS[2], string.format('%d', following), timer)
else
  drop_timer(KEYS[2], KEYS[3], timer)
end
if agent == '' then
  redis.call('XADD', KEYS[4], '*', 'e', ARGV[9])
else
  deliver(KEYS[4], KEYS[1], ARGV[2], ARGV[3], ARGV[7], agent, ARGV[9])
end
return {'OK', string.format('%d', following)}
