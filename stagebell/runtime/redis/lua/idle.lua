#!lua flags=no-writes
-- How many entries all these inboxes hold, at one moment.
-- KEYS inbox…
-- ARGV
-- returns the sum of their lengths
--
-- One step: read one after the other, a message that moves between two inboxes could be missed in both.
local total = 0
for i = 1, #KEYS do total = total + redis.call('XLEN', KEYS[i]) end
return total
