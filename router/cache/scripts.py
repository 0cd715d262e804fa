"""What runs inside Redis: an entry or the right to make it in one round trip, and the end of that right.

A lease is a key with a token and a short life: whoever holds it asks upstream, renews it meanwhile, and gives it back.
A holder that crashes renews nothing, so its lease ends by itself.
"""

from __future__ import annotations

from hashlib import sha1

HELD_BY_OTHER = 0
LEASE_TAKEN = 1
GO_ALONE = 2
"""The last holder's answer could not be kept: waiting for the next one's would be for nothing."""

LOOK = """
local entry = redis.call('GET', KEYS[1])
if entry then return entry end
local held = redis.call('GET', KEYS[2])
if held == '-' then return 2 end
if held then
  redis.pcall('SET', KEYS[3], '1', 'PX', ARGV[3])
  return 0
end
local set = redis.pcall('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])
if set.err then return 2 end
return 1
"""
"""KEYS: entry, lease, mark. ARGV: token, lease's life and the mark's in ms.

Gives the entry's bytes, or one of the numbers above. The mark tells the holder that somebody waits.
"""

LEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == 'renew' then return redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[2] == 'alone' then redis.call('SET', KEYS[1], '-', 'PX', ARGV[3]) return 1 end
return redis.call('DEL', KEYS[1])
"""
"""KEYS: lease. ARGV: token, `renew`, `alone` or `free`, time in ms. Only the holder changes its lease."""


AUDIT = """
local base, found, key = ARGV[1], ARGV[2], KEYS[1]
if redis.call('HGET', key, 'base') ~= base then
  redis.call('DEL', key)
  redis.call('HSET', key, 'base', base, 'threshold', base, 'checked', 0, 'wrong', 0)
end
local raised = 0
if found ~= 'look' then
  local checked = redis.call('HINCRBY', key, 'checked', 1)
  local wrong = redis.call('HINCRBY', key, 'wrong', found)
  redis.call('HINCRBY', key, 'checked_in_all', 1)
  redis.call('HINCRBY', key, 'wrong_in_all', found)
  if found == '1' and wrong > tonumber(ARGV[4]) * math.max(checked, tonumber(ARGV[5])) then
    local threshold = tonumber(redis.call('HGET', key, 'threshold')) + tonumber(ARGV[3])
    redis.call('HSET', key, 'threshold', string.format('%.6f', threshold), 'checked', 0, 'wrong', 0)
    raised = 1
  end
end
return {redis.call('HGET', key, 'threshold'), redis.call('HGET', key, 'checked'), redis.call('HGET', key, 'wrong'), raised}
"""
"""KEYS: a group's books. ARGV: configured threshold; `look`, `0` (agreed) or `1` (wrong); step; bound; enough checks.

Gives threshold, checks and wrong ones since the last rise, and 1 where this one raised it. Another configured threshold
begins new books.
"""


def sha(script: str) -> str:
    """Return the name under which the server keeps a script."""
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


LOOK_SHA = sha(LOOK)
LEASE_SHA = sha(LEASE)
AUDIT_SHA = sha(AUDIT)
