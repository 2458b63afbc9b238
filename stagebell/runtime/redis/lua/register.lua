#!lua flags=allow-oom
-- Change the registry; its version grows when anything changed, so that whoever resolved recipients before learns it.
-- KEYS reg
-- ARGV then per change: op field value
-- returns {version, changed 0|1, the value now stored for each field, '' if none…}
--
-- op nx: set if absent; set; del (with a value: only if that is what is stored). Changes are made in order; a wrong
-- one refuses all before the first.
local n = #ARGV / 3
local ops = {nx = true, set = true, del = true}
for i = 1, #ARGV, 3 do
  if not ops[ARGV[i]] or not ARGV[i + 2] or ARGV[i + 1] == 'v' then return redis.error_reply('BADARGS register') end
end
local version = tonumber(redis.call('HGET', KEYS[1], 'v') or '0')
local changed = 0
for i = 1, #ARGV, 3 do
  local op, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local stored = redis.call('HGET', KEYS[1], name)
  if op == 'del' and stored and (value == '' or value == stored) then
    redis.call('HDEL', KEYS[1], name)
    changed = 1
  elseif (op == 'nx' and not stored) or (op == 'set' and stored ~= value) then
    redis.call('HSET', KEYS[1], name, value)
    changed = 1
  end
end
if changed == 1 then redis.call('HSET', KEYS[1], 'v', version + 1) end
local answer = {version + changed, changed}
for i = 1, n do answer[2 + i] = redis.call('HGET', KEYS[1], ARGV[3 * i - 1]) or '' end
return answer
