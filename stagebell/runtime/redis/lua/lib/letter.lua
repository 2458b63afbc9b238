-- What a dead letter keeps of an entry. Ours have few fields; a foreign hand's may have thousands, too many to unpack.
local MOST_FIELDS, MOST_BYTES = 32, 1048576

-- kept(fields, known): the fields as they are, or of too many only those that are known, cut short
local function kept(fields, known)
  if #fields <= 2 * MOST_FIELDS then return fields end
  local found = {}
  for i = 1, #fields, 2 do
    if known[fields[i]] and #found < 2 * MOST_FIELDS then
      found[#found + 1] = fields[i]
      found[#found + 1] = string.sub(fields[i + 1], 1, MOST_BYTES)
    end
  end
  found[#found + 1] = 'fields'
  found[#found + 1] = tostring(#fields / 2)
  return found
end

-- letter(dlq, id): the fields of a dead letter, or nil (needs checks)
local function letter(dlq, id)
  local found = redis.pcall('XRANGE', dlq, id, id)
  if found.err then bad = bad or dlq; return nil end
  return found[1] and found[1][2]
end

-- marked(marker): the id of the entry that a letter has become, if this is the same request again (needs checks)
local function marked(marker)
  local known = redis.pcall('GET', marker)
  if type(known) == 'table' then bad = bad or marker; return false end
  return known
end
