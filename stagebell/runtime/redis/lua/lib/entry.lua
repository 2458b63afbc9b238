-- entry(inbox, id, turn): the fields of the entry with this id AND this turn id, or nil.
-- Entry ids alone can be given out twice, when the server lost its last writes.
local function entry(inbox, id, turn)
  local found = redis.pcall('XRANGE', inbox, id, id)
  if found.err then bad = bad or inbox; return nil end
  local fields = found[1] and found[1][2] or {}
  for i = 1, #fields, 2 do
    if fields[i] == 'm' then return fields[i + 1] == turn and fields or nil end
  end
end

-- entry_without_turn(inbox, id): the fields of the entry with this id if it has no turn id that we could have given
local function entry_without_turn(inbox, id)
  local found = redis.pcall('XRANGE', inbox, id, id)
  if found.err then bad = bad or inbox; return nil end
  local fields = found[1] and found[1][2]
  for i = 1, fields and #fields or 0, 2 do
    if fields[i] == 'm' and fields[i + 1] ~= '' and not string.find(fields[i + 1], '[\128-\255]') then return nil end
  end
  return fields
end
