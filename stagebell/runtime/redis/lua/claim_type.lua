#!lua flags=allow-oom
-- Take a process-bound agent type, unless a living worker holds it.
-- KEYS reg workers
-- ARGV field worker value timeout_ms now
-- returns {1, version} (this worker holds it) | {0, holder} | {-1, value} (the type is not process-bound)
--
-- The holder is the "w" of the JSON value. One whose beat (server time, in `workers`) is missing or older than
-- timeout_ms has lost the type: the first of those who stand by takes over. One that has signed off may have claimed it
-- since, by a request that came late; it gets a beat of long ago, so that somebody cleans up after it.
--@include clock
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local version = tonumber(redis.call('HGET', KEYS[1], 'v') or '0')
local gone
if stored then
  local readable, value = pcall(cjson.decode, stored)
  local holder = readable and type(value) == 'table' and value.w
  if type(holder) ~= 'string' then return {-1, stored} end
  if holder ~= ARGV[2] then
    local beat = redis.call('ZSCORE', KEYS[2], holder)
    if beat and tonumber(beat) > now_ms(ARGV[5]) - tonumber(ARGV[4]) then return {0, holder} end
    gone = not beat and holder
  end
end
if gone then redis.call('ZADD', KEYS[2], 0, gone) end
if stored ~= ARGV[3] then
  version = version + 1
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], 'v', version)
end
return {1, version}
