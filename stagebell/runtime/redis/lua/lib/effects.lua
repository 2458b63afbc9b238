-- What a commit does beside sending messages (needs checks, clock, bell, answer, timers). An output whose tag begins with
-- a character below '-', as no tag does, is one of these; each has its two keys and the three arguments after the tag:
--   #      hash -               field expected new     set a field that still has the expected value ('*': whatever
--                                                      it has); new '' deletes it
--   &tag   reply_key reply_own  turn k payload         answer call k of a turn; without a tag, call `turn` of a client
--   +      due messages         timer when message     set a timer; without a message cancel it
--   !tag   own -                - - -                  tell the partition's owner that a timer was set
local function is_effect(tag) return string.byte(tag) < 45 end

-- may_happen(…): checks the keys; false when the store is not what the turn saw
local function may_happen(key, own, tag, a, b, c)
  if tag == '#' then
    local now = field(key, a)
    return b == '*' or now == b
  elseif tag == '+' then
    expect(key, 'zset')
    expect(own, 'hash')
  elseif string.byte(tag) == 38 then
    open_call(tag == '&' and 'stream' or 'journal', key, b)
  end
  return true
end

-- happen(…): nothing in here can fail
local function happen(key, own, head, tag, a, b, c)
  if tag == '#' then
    if c == '' then redis.call('HDEL', key, a) else redis.call('HSET', key, a, c) end
  elseif tag == '+' then
    if c == '' then drop_timer(key, own, a) else set_timer(key, own, a, due_at(b, now_ms('')), c) end
  elseif string.byte(tag) == 33 then
    local owner = owner_of(key)
    if owner then ring(head, owner, '', 'k', 'due', 'p', string.sub(tag, 2)) end
  elseif tag == '&' then
    answer('stream', key, own, a, '', '', c, head, false, 0)
  else
    -- looked up only now: the turn may answer several calls of one caller
    local open, replies = open_call('journal', key, b)
    answer('journal', key, own, b, a, string.sub(tag, 2), c, head, open, replies)
  end
end
