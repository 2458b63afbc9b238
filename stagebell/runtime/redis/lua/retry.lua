#!lua flags=allow-oom
-- Note that an attempt at a turn has failed, before it is tried again: its message stays in the inbox.
-- KEYS own hold inbox run journal savepoints
-- ARGV tok agent entry_id turn_id attempt known_replies known_savepoints k…
-- returns {'OK', failures} | {'FENCED'} | {'DUP'} | {'STALE'} | {'BADKEY', key}
--
-- Field '#f' of the journal counts the failures, as 'count:attempt', and ends with the journal. An attempt has a name
-- of its own: one that is told twice, since its answer was lost, counts once. It ended in order, so it is no more one
-- of those whose worker may have died. Calls k were answered with a failure, which is forgotten: the next attempt makes
-- them again, and no savepoint tells any more that the turn had taken it (lib/step_back); other replies stay. A former
-- owner that still holds the agent drops its hold after this. STALE: the server lost writes; an attempt that failed on
-- a reply which it has lost did not fail, and the next one would not come to the calls that are open after it.
--@include checks
--@include fence
--@include entry
--@include attempts
--@include step_back
local right = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not right then return refuse({'FENCED'}) end
if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end
local started, token = attempts_of(KEYS[4], ARGV[4])
local failures, last = failures_of(KEYS[5])
local answered, forgotten = {}, {}
for i = 8, #ARGV do
  forgotten[ARGV[i]] = true
  if string.sub(field(KEYS[5], ARGV[i]) or '', 1, 1) == 'R' then answered[#answered + 1] = ARGV[i] end
end
local step = #ARGV > 7 and step_back(KEYS[6], forgotten)
local behind = count(KEYS[5], '#r') < tonumber(ARGV[6]) or count(KEYS[6], '#n') < tonumber(ARGV[7])
if bad then return refuse() end
if last == ARGV[5] then return {'OK', failures} end
if behind then return {'STALE'} end

-- nothing has been written so far; nothing below can fail
redis.call('HSET', KEYS[5], '#f', failures + 1 .. ':' .. ARGV[5])
for _, k in ipairs(answered) do redis.call('HDEL', KEYS[5], k) end
if step then stepped_back(KEYS[6], step) end
if token == ARGV[1] and started > 1 then
  redis.call('HSET', KEYS[4], ARGV[4], started - 1 .. ':')
elseif token == ARGV[1] then
  redis.call('HDEL', KEYS[4], ARGV[4])
end
return {'OK', failures + 1}
