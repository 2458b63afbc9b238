-- now_ms(given): the server's clock in ms, or the injected number. The clocks of workers are never compared.
local function now_ms(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
