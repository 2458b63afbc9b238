-- Run what follows for each request that came with this command, one after the other: each has an answer of its own,
-- and what goes wrong in one is its answer alone. Whatever they tell one reader leaves as one entry (see bell).
-- ARGV: for each request its number of keys, its number of arguments, and these; KEYS: their keys in turn.
local function one(KEYS, ARGV)
--@body
end

-- part(list, first, last): as a list of its own; longer ones than `unpack` can take are copied
local function part(list, first, last)
  if last - first < 4000 then return {unpack(list, first, last)} end
  local copy = {}
  for i = first, last do copy[i - first + 1] = list[i] end
  return copy
end

local answers, key, argument = {}, 0, 0
gathered = {}
while argument < #ARGV do
  local keys, arguments = tonumber(ARGV[argument + 1]), tonumber(ARGV[argument + 2])
  bad = false
  local done, answer = pcall(one, part(KEYS, key + 1, key + keys), part(ARGV, argument + 3, argument + 2 + arguments))
  if not done and type(answer) ~= 'table' then answer = redis.error_reply('ERR ' .. tostring(answer)) end
  answers[#answers + 1] = answer
  key, argument = key + keys, argument + 2 + arguments
end
tell_all()
return answers
