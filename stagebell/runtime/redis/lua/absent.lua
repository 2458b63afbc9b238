#!lua flags=no-writes
-- Which of these entries an inbox does not hold, or holds for another turn.
-- KEYS inbox
-- ARGV then per entry: entry_id turn_id
-- returns the ids of those that are absent | {'BADKEY', key}
--
-- Turn id '' is for an entry of any turn.
--@include checks
--@include entry
expect(KEYS[1], 'stream')
if bad then return refuse() end
local absent = {}
for i = 1, #ARGV, 2 do
  local id, turn = ARGV[i], ARGV[i + 1]
  local there = turn == '' and redis.call('XRANGE', KEYS[1], id, id)[1] or entry(KEYS[1], id, turn)
  if not there then absent[#absent + 1] = id end
end
return absent
