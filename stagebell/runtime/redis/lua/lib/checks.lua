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

-- expect(key, kind): the key must be absent or of this type
local function expect(key, kind)
  local t = redis.pcall('TYPE', key)
  if t.ok ~= kind and t.ok ~= 'none' then bad = bad or key end
end

-- refuse(answer): the answer, or BADKEY when a wrong key has spoilt the check that led to it
local function refuse(answer)
  if bad then return {'BADKEY', bad} end
  return answer
end
