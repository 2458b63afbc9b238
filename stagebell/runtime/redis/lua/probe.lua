#!lua flags=allow-oom
-- Try commands on a scratch key, which is gone afterwards: an ACL that forbids one of them would let the other
-- scripts end in the middle, with half of their writes made.
-- KEYS probe
-- ARGV command…
-- returns {command, error, …} of those that the server refuses
local key = KEYS[1]
local tries = {
  DEL = {key}, EXISTS = {key}, GET = {key}, SET = {key, '1'}, TYPE = {key}, PTTL = {key}, PEXPIRE = {key, 1000},
  PERSIST = {key},
  HGET = {key, 'f'}, HMGET = {key, 'f'}, HGETALL = {key}, HKEYS = {key}, HSET = {key, 'f', 'v'}, HDEL = {key, 'f'},
  HINCRBY = {key, 'f', 1}, SADD = {key, 'm'}, ZADD = {key, 1, 'm'}, ZSCORE = {key, 'm'}, ZREM = {key, 'm'},
  ZRANGE = {key, 0, -1}, XADD = {key, '*', 'f', 'v'}, XDEL = {key, '1-1'}, XLEN = {key}, XTRIM = {key, 'MAXLEN', 0},
  XRANGE = {key, '-', '+'}, XREVRANGE = {key, '+', '-'}, TIME = {},
}

local refused = {}
local function try(command)
  local answer = redis.pcall(command, unpack(tries[command]))
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = command
    refused[#refused + 1] = answer.err
  end
end

try('DEL')
if #refused > 0 then return refused end -- nothing else is tried, since it could not be removed
for i = 1, #ARGV do
  try(ARGV[i])
  redis.call('DEL', key)
end
return refused
