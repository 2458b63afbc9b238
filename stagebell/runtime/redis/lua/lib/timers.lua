-- The timers of one partition: the zset `due` says when (ms), the hash `messages` holds nonce|every_ms|envelope.

-- due_at(when, now): '+250' is counted from now, another number is the time itself
local function due_at(when, now)
  local ms = tonumber(when)
  return string.sub(when, 1, 1) == '+' and now + ms or ms
end

-- set_timer(…): set or replace; nothing in here can fail
local function set_timer(due, messages, timer, at, message)
  redis.call('ZADD', due, string.format('%d', at), timer)
  redis.call('HSET', messages, timer, message)
end

-- drop_timer(…): returns 1 when there was one
local function drop_timer(due, messages, timer)
  redis.call('HDEL', messages, timer)
  return redis.call('ZREM', due, timer)
end
