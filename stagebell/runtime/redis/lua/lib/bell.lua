-- A bell is a hint to the worker that owns something now. It may get lost, so its failure (an undeclared key
-- that an ACL forbids, a key of another type) must not fail a script that has begun to write: pcall.
local LENGTH, LIVES_MS, CARRIED, TOLD_AT_ONCE = 10000, 3600000, 16384, 1000
local gathered = false -- in a script that runs for several requests: what they tell, by key
local newest = {} -- by inbox: the entry that this script has added last

-- keep(key, ms): let it live for ms more; written only when half of that is gone, as each write is replicated
local function keep(key, ms)
  local rest = redis.pcall('PTTL', key)
  if type(rest) == 'number' and rest < ms / 2 then redis.pcall('PEXPIRE', key, ms) end
end

local function add(key, fields)
  redis.pcall('XADD', key, 'MAXLEN', '~', LENGTH, '*', unpack(fields))
  keep(key, LIVES_MS)
end

-- tell(key, fields): to a reader of this stream, who takes each field k for the beginning of a message of its own
local function tell(key, fields)
  if not gathered then return add(key, fields) end
  local before = gathered[key]
  if not before then
    gathered[key], gathered[#gathered + 1] = fields, key
    return
  end
  if #before + #fields > TOLD_AT_ONCE then
    add(key, before)
    gathered[key] = fields
    return
  end
  for i = 1, #fields do before[#before + 1] = fields[i] end
end

-- tell_all(): what was gathered
local function tell_all()
  for _, key in ipairs(gathered) do add(key, gathered[key]) end
end

-- owner_of(own): the worker that owns this, or false; looked up once, since no script asks after it has changed it
local owners = {}
local function owner_of(own)
  local owner = owners[own]
  if owner == nil then
    owner = redis.pcall('HGET', own, 'owner')
    owner = type(owner) == 'string' and owner ~= '' and owner
    owners[own] = owner
  end
  return owner
end

-- ring(head, owner, payload, fields…): payloads that are too long to carry are left out
local function ring(head, owner, payload, ...)
  local fields = {...}
  if #payload <= CARRIED then
    fields[#fields + 1] = 'e'
    fields[#fields + 1] = payload
  end
  tell(head .. owner .. '}:bell', fields)
end

-- deliver(…): add a message to an inbox and ring its owner's bell. The bell's h is what a reader has to know beside the
-- envelope: partition, entry id, the id of the entry before it ('-': none), turn id, agent. A reader who knows the entry
-- before has missed nothing. The caller may know that the inbox is empty.
local function deliver(inbox, own, head, tag, turn, agent, envelope, empty)
  local owner, before = owner_of(own), newest[inbox] or '-'
  if owner and not empty and before == '-' then
    local last = redis.call('XREVRANGE', inbox, '+', '-', 'COUNT', 1)[1]
    before = last and last[1] or before
  end
  local id = redis.call('XADD', inbox, '*', 'm', turn, 'a', agent, 'e', envelope)
  if owner then
    newest[inbox] = id
    ring(head, owner, envelope, 'k', 'in', 'h', table.concat({tag, id, before, turn, agent}, ' '))
  end
  return id
end
