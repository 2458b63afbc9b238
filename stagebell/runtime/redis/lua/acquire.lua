#!lua flags=allow-oom
-- Take a partition that is free or whose lease has expired.
-- KEYS own hold
-- ARGV worker nonce ttl_ms now
-- returns {1, token, epoch, previous token, agents held by a former owner…} | {0, owner, remaining ms}
--
-- A nonce is new for each request: the same request repeated (its reply was lost) gets the same grant.
-- The epoch alone is no fence: a failover that loses the last grant gives the same number out twice. With the
-- worker and its nonce in it a token is unique for ever.
--@include clock
local o = redis.call('HMGET', KEYS[1], 'owner', 'until', 'epoch', 'tok', 'prev')
local held = redis.call('HKEYS', KEYS[2])
local now = now_ms(ARGV[4])
local owner, ends, epoch, token, previous = o[1] or '', tonumber(o[2] or '0'), tonumber(o[3] or '0'), o[4], o[5]
local suffix = ':' .. ARGV[1] .. ':' .. ARGV[2]
if owner ~= ARGV[1] or token ~= epoch .. suffix then
  if owner ~= '' and ends > now then return {0, owner, ends - now} end
  epoch, previous = epoch + 1, token or ''
  token = epoch .. suffix
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'until', now + tonumber(ARGV[3]), 'epoch', epoch, 'tok', token,
    'prev', previous)
end
local grant = {1, token, epoch, previous or ''}
for i = 1, #held do grant[4 + i] = held[i] end
return grant
