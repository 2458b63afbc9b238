#!lua flags=allow-oom
-- Note that a worker lives, and what it says of itself.
-- KEYS workers worker_key
-- ARGV worker expires_ms now, then per field: field value
-- returns 1
--
-- With allow-oom: a full server must not take its workers for dead.
--@include clock
redis.call('ZADD', KEYS[1], now_ms(ARGV[3]), ARGV[1])
if #ARGV > 3 then redis.call('HSET', KEYS[2], unpack(ARGV, 4)) end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
