-- standing(own, hold, tok, agent): by what right this token may act for the agent: 'owner', 'hold' or false.
-- The owner may not touch an agent whose turn still runs at a former owner; that one may, by its hold.
local function standing(own, hold, tok, agent)
  local held = field(hold, agent)
  if field(own, 'tok') == tok then return not held and 'owner' end
  return held and string.match(held, '^%d+|([^|]*)') == tok and 'hold'
end
