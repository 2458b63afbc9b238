-- Savepoints whose turn had taken replies that are forgotten now. From the first such reply on the turn may go another
-- way when it runs again, so what it had taken after it says nothing any more. The newest of them holds what the others
-- hold: it alone stays, at the place before that reply, where the turn awaits the call again. (needs checks)

-- names_in(list): the calls in a list such as '0.0,1.0', in order
local function names_in(list)
  local names = {}
  for name in string.gmatch(list, '[^,]+') do names[#names + 1] = name end
  return names
end

-- places_in(key): the numbers of the savepoints, the last one highest
local function places_in(key)
  local names, numbers = redis.pcall('HKEYS', key), {}
  if names.err then bad = bad or key; return numbers end
  for _, name in ipairs(names) do numbers[#numbers + 1] = tonumber(string.match(name, '^@(%d+)$')) end
  table.sort(numbers)
  return numbers
end

-- step_back(key, forgotten): what has to be done so that no savepoint names these calls as taken; false for nothing
local function step_back(key, forgotten)
  local numbers, before, first = places_in(key), {}, false
  local newest = numbers[#numbers]
  local state, place = newest and field(key, newest), newest and field(key, '@' .. newest) or ''
  local taken, below = string.match(place, '^%d+ (%S*) %S* (%S*)$')
  for _, name in ipairs(names_in(taken or '')) do
    first = first or forgotten[name] and name
    if not first then before[#before + 1] = name end
  end
  if not first or not state then return false end
  local there = string.match(field(key, '@' .. #before) or '', '^%d+ %S* (%S*) %S*$') or ''
  local awaited = names_in(there)
  if not string.find(',' .. there .. ',', ',' .. first .. ',', 1, true) then awaited[#awaited + 1] = first end
  table.sort(awaited)
  place = {#before, table.concat(before, ','), table.concat(awaited, ','), below}
  return {#before, numbers, table.concat(place, ' '), state, field(key, 'last')}
end

-- stepped_back(key, step): do it; nothing in here can fail
local function stepped_back(key, step)
  local to, numbers, place, state, last = unpack(step)
  for _, n in ipairs(numbers) do
    if n >= to then redis.call('HDEL', key, n, '@' .. n) end
  end
  redis.call('HSET', key, to, state, '@' .. to, place)
  if last ~= '-' then redis.call('HSET', key, 'last', to) end
end
