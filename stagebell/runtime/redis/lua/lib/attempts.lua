-- attempts_of(run, turn): how many workers have started this turn and have not ended it, and the token of the last one
-- (needs checks)
local function attempts_of(run, turn)
  local count, token = string.match(field(run, turn) or '0:', '^(%d+):?(.*)$')
  return tonumber(count or '0'), token or ''
end

-- failures_of(journal): how many attempts of this turn ended with an error, and the name of the last one
local function failures_of(journal)
  local count, attempt = string.match(field(journal, '#f') or '0:', '^(%d+):?(.*)$')
  return tonumber(count or '0'), attempt or ''
end
