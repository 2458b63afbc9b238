-- A bell is a hint to the worker that owns something now. It may get lost, so its failure (an undeclared key
-- that an ACL forbids, a key of another type) must not fail a script that has begun to write: pcall.
local BELL_LENGTH, BELL_MS, CARRIED = 10000, 3600000, 16384

-- keep(key, ms): let it live for ms more; written only when half of that is gone, as each write is replicated
local function keep(key, ms)
  local rest = redis.pcall('PTTL', key)
  if type(rest) == 'number' and rest < ms / 2 then redis.pcall('PEXPIRE', key, ms) end
end

-- owner_of(own): the worker that owns this, or false
local function owner_of(own)
  local owner = redis.pcall('HGET', own, 'owner')
  return type(owner) == 'string' and owner ~= '' and owner
end

-- ring(head, owner, payload, fields…): payloads that are too long to carry are left out
local function ring(head, owner, payload, ...)
  local key = head .. owner .. '}:bell'
  local fields = {...}
  if #payload <= CARRIED then
    fields[#fields + 1] = 'e'
    fields[#fields + 1] = payload
  end
  redis.pcall('XADD', key, 'MAXLEN', '~', BELL_LENGTH, '*', unpack(fields))
  keep(key, BELL_MS)
end

-- deliver(…): add a message to an inbox and ring its owner's bell; q names the entry before it, so that a
-- reader who knows that one has missed nothing
local function deliver(inbox, own, head, tag, turn, agent, envelope)
  local owner = owner_of(own)
  local last = owner and redis.call('XREVRANGE', inbox, '+', '-', 'COUNT', 1)[1]
  local id = redis.call('XADD', inbox, '*', 'm', turn, 'a', agent, 'e', envelope)
  if owner then
    ring(head, owner, envelope, 'k', 'in', 'p', tag, 'i', id, 'q', last and last[1] or '', 'm', turn, 'a', agent)
  end
  return id
end
