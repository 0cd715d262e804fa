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


def sha(script: str) -> str:
    """Return the name under which the server keeps a script."""
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


LOOK_SHA = sha(LOOK)
LEASE_SHA = sha(LEASE)
