-- Reads that remember the first key of a wrong type, so that a script can say BADKEY before its first write
-- instead of failing in the middle: what a script wrote before an error is not undone.
local bad = false

-- field(key, name): a field of a hash, false when absent
local function field(key, name)
  local v = redis.pcall('HGET', key, name)
  if type(v) == 'table' then bad = bad or key; return false end
  return v
end

-- count(key, name): a counter in a hash, 0 when absent
local function count(key, name)
  local n = tonumber(field(key, name) or '0')
  if not n then bad = bad or key end
  return n or 0
end

-- expect(key, kind): the key must be absent or of this type; looked at once, since we write each as one type only
local expected = {}
local function expect(key, kind)
  if expected[key] == kind then return end
  local t = redis.pcall('TYPE', key)
  if t.ok ~= kind and t.ok ~= 'none' then bad = bad or key else expected[key] = kind end
end

-- length(stream): how many entries it has; whoever adds to it afterwards keeps `lengths` true
local lengths = {}
local function length(stream)
  local n = lengths[stream] or redis.pcall('XLEN', stream)
  if type(n) == 'table' then bad = bad or stream; return 0 end
  lengths[stream] = n
  return n
end

-- version_of(registry): the same for all requests of one command
local versions = {}
local function version_of(registry)
  local version = versions[registry] or field(registry, 'v') or '0'
  if not bad then versions[registry] = version end
  return version
end

-- refuse(answer): the answer, or BADKEY when a wrong key has spoilt the check that led to it
local function refuse(answer)
  if bad then return {'BADKEY', bad} end
  return answer
end
