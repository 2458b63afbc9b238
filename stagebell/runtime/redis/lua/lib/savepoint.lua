-- A savepoint: the agent's state after a nested turn, and the place where the parent turn stood then.
-- A place is '<n> <taken> <awaited> <below>': how many replies the parent had taken; their calls, in order; the calls
-- that it awaited; the turns below the parent and where they stood, see savepoints.py. Or '- ', when the nested turn came
-- through an agent in memory: then only a failing parent needs the state.
-- The hash: field <n> the state, @<n> the place, 'last' the field of the newest state, '#n' how many there were.

-- is_place(text): whether a savepoint can be kept under it
local function is_place(text) return string.find(text, '^%d+ %S* %S* %S*$') or text == '- ' end

-- is_open(run, parent): whether the turn whose savepoints this key holds has begun and not ended (needs checks). One
-- that has ended keeps none; what would have been nested in it is a turn by itself.
local function is_open(run, parent) return field(run, string.match(parent, '}:sp:(.*)$') or '') end

-- has_below(key, name): whether this savepoint, in field `name`, is on top of what other turns had done (needs checks)
local function has_below(key, name) return string.find(field(key, '@' .. name) or '', '^%d+ %S* %S* %S') end

-- keep_savepoint(key, place, state, n): the n-th one; nothing in here can fail
local function keep_savepoint(key, place, state, n)
  local name = string.match(place, '^%S+')
  redis.call('HSET', key, '#n', n, name, state, 'last', name)
  if name ~= '-' then redis.call('HSET', key, '@' .. name, place) end
end
