#!lua flags=no-writes
-- The timers of a partition that are due, the earliest first, and when the next one is.
-- KEYS due messages
-- ARGV count now
-- returns {now, when the next one is due or -1, then per timer that is due: timer, due, message}
--@include checks
--@include clock
expect(KEYS[1], 'zset')
if bad then return redis.error_reply('BADKEY ' .. bad) end
local now = string.format('%d', now_ms(ARGV[2]))
local following = redis.call('ZRANGE', KEYS[1], '(' .. now, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
local found = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
local answer = {now, following or '-1'}
for i = 1, #found, 2 do
  answer[#answer + 1] = found[i]
  answer[#answer + 1] = found[i + 1]
  answer[#answer + 1] = field(KEYS[2], found[i]) or ''
end
return answer
