-- What a commit does beside sending messages (needs checks, bell, answer). An output whose tag begins with a character
-- below '-', as no tag does, is one of these; each has its two keys and the three arguments after the tag:
--   #      hash -               field expected new     set a field that still has the expected value ('*': whatever
--                                                      it has); new '' deletes it
--   &tag   reply_key reply_own  turn k payload         answer call k of a turn; without a tag, the call `turn` of a client
local function is_effect(tag) return string.byte(tag) < 45 end

-- may_happen(…): checks the keys; false when the store is not what the turn saw
local function may_happen(key, own, tag, a, b, c)
  if tag == '#' then
    local now = field(key, a)
    return b == '*' or now == b
  end
  open_call(tag == '&' and 'stream' or 'journal', key, b)
  return true
end

-- happen(…): nothing in here can fail
local function happen(key, own, head, tag, a, b, c)
  if tag == '#' then
    if c == '' then redis.call('HDEL', key, a) else redis.call('HSET', key, a, c) end
  elseif tag == '&' then
    answer('stream', key, own, a, '', '', c, head, false, 0)
  else
    -- looked up only now: the turn may answer several calls of one caller
    local open, replies = open_call('journal', key, b)
    answer('journal', key, own, b, a, string.sub(tag, 2), c, head, open, replies)
  end
end
