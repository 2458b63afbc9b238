-- A hold keeps an agent for a former owner of its partition until that one has ended the agent's open turns
-- (needs bell). Field agent of `hold`: until|token|turn,turn…; only agents that take several at once have more than one.

-- unhold(own, hold, agent, turn, head): a turn has ended; the last one frees the agent, and the owner is told
local function unhold(own, hold, agent, turn, head)
  local kept, turns = string.match(redis.call('HGET', hold, agent), '^(%d+|[^|]*|)(.*)$')
  local left, found = {}, false
  for each in string.gmatch(turns or '', '[^,]+') do
    if each == turn then found = true else left[#left + 1] = each end
  end
  if not found then return end
  if #left > 0 then
    redis.call('HSET', hold, agent, kept .. table.concat(left, ','))
    return
  end
  redis.call('HDEL', hold, agent)
  local owner = owner_of(own)
  if owner then ring(head, owner, '', 'k', 'freed', 'p', string.match(own, '{(.*)}:own$'), 'a', agent) end
end
