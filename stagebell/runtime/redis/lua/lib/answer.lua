-- How the outcome of a call reaches the one who waits for it (needs bell).
local LEFT_OPEN_MS = 86400000

-- to_stream(key, call, payload): to a reader outside of turns
local function to_stream(key, call, payload)
  tell(key, {'k', 'rep', 'j', call, 'e', payload})
end

-- open_call(mode, key, k, id): the caller's entry for this call ('S…' open, 'F…' left open by a turn that ended,
-- false: nobody waits) and its count of replies; checks the key for both ways of replying. With the id of a request
-- nobody waits when another one is open: an attempt that was made again has made its call again, too
local function open_call(mode, key, k, id)
  if mode == 'journal' then
    local open = field(key, k)
    local other = id and open and string.sub(open, 1, 1) == 'S' and string.match(open, '^[^ ]*', 10) ~= id
    return not other and open, count(key, '#r')
  end
  if mode == 'stream' or mode == 'inbox' then expect(key, 'stream') end
  return false, 0
end

-- answer(mode, key, own, k, turn, tag, payload, head, open, replies): nothing in here can fail. In mode 'inbox' the
-- payload is a message of its own, with this turn id, for agent k.
local function answer(mode, key, own, k, turn, tag, payload, head, open, replies)
  if mode == 'stream' then to_stream(key, k, payload) end
  if mode == 'inbox' then deliver(key, own, head, tag, turn, k, payload) end
  if not open then return end
  local state = string.sub(open, 1, 1)
  if state == 'S' then
    redis.call('HSET', key, k, 'R' .. string.sub(open, 2, 9) .. payload, '#r', replies + 1)
    local owner = owner_of(own)
    -- i: the request that is answered, since an attempt that is made again makes its call again, too
    if owner then
      ring(head, owner, payload, 'k', 'rep', 'p', tag, 't', turn, 'j', k, 'i', string.match(open, '^[^ ]*', 10))
    end
  elseif state == 'F' then
    redis.call('HDEL', key, k)
    to_stream(string.sub(open, 10), turn .. '.' .. k, payload)
  end
end

-- forget(journal, savepoints, turn, left, stream): delete what an ended turn kept. A call that is still awaited
-- by a task of it goes on: its reply goes, now or when it comes, to the worker's own stream.
local function forget(journal, savepoints, turn, left, stream)
  local calls = {}
  for _, k in ipairs(left) do calls[k] = redis.call('HGET', journal, k) end
  redis.call('DEL', journal, savepoints)
  for k, call in pairs(calls) do
    local state = call and string.sub(call, 1, 1)
    if state == 'R' then
      to_stream(stream, turn .. '.' .. k, string.sub(call, 10))
    elseif state == 'S' then
      redis.call('HSET', journal, k, 'F' .. string.sub(call, 2, 9) .. stream)
      redis.call('PEXPIRE', journal, LEFT_OPEN_MS)
    end
  end
end
