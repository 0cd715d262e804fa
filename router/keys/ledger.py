"""The claims of all workers, in Redis: one hash for each key, one field for each worker. One script reads and writes it.

A field says what its worker runs, its spare places and until when they hold, how many requests wait there and since
when, and when it was written. What a worker claimed counts while it beats (`WORKERS`); a hash that nobody writes to
ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from router.keys.places import HOLD_S, Heard, Told

PREFIX = "bitgear:running"
WORKERS = "bitgear:workers"
ALIVE_S = 10
"""A worker that is silent for so long is dead, and its requests with it."""
_WANT_MS = 100
"""So long a request that waits keeps its turn after it was last asked for."""
_KEEP_MS = 60_000

BEAT = """
local now = tonumber(redis.call('TIME')[1])
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
redis.call('EXPIRE', KEYS[1], 60)
local alive = known and tonumber(known) > now - tonumber(ARGV[2])
return {redis.call('ZCARD', KEYS[1]), alive and 1 or 0}
"""
"""Returns how many workers live, and whether this one was known to."""

CLAIM = """
local me, alive_s, hold, want, keep = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local alive, workers = {}, 1
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. (tonumber(time[1]) - alive_s), '+inf')) do
  alive[name] = true
  if name ~= me then workers = workers + 1 end
end
local answers = {}
for i = 2, #KEYS do
  local key, arg = KEYS[i], 6 + (i - 2) * 4
  local running, kept = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local waiting, limit = tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local others, wanted, since, queue = 0, 0, now, {}
  local fields = redis.call('HGETALL', key)
  for j = 1, #fields, 2 do
    local runs, spare, till, waits, at, wrote = string.match(fields[j + 1], '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
    local turn = wrote and tonumber(waits) > 0 and tonumber(wrote) + want > now
    if fields[j] == me then
      if turn then since = tonumber(at) end
    elseif not (wrote and alive[fields[j]]) then
      redis.call('HDEL', key, fields[j])
    else
      others = others + tonumber(runs)
      if tonumber(till) > now then others = others + tonumber(spare) end
      if turn then
        wanted = wanted + tonumber(waits)
        queue[#queue + 1] = {tonumber(at), tonumber(waits)}
      end
    end
  end
  local ahead = 0
  for _, entry in ipairs(queue) do
    if entry[1] < since then ahead = ahead + entry[2] end
  end
  local free = limit - others - running - kept
  local granted = math.max(0, math.min(waiting, free - ahead))
  waiting = waiting - granted
  local rest = free + kept - granted - wanted
  local spare = kept
  if wanted == 0 then spare = math.max(kept, math.floor(rest / (workers + 1))) end
  running = running + granted
  if running + spare + waiting == 0 then
    redis.call('HDEL', key, me)
  else
    local format = '%.0f %.0f %.0f %.0f %.0f %.0f'
    redis.call('HSET', key, me, string.format(format, running, spare, now + hold, waiting, since, now))
    redis.call('PEXPIRE', key, keep)
  end
  answers[#answers + 1] = granted
  answers[#answers + 1] = spare
  answers[#answers + 1] = rest
  answers[#answers + 1] = wanted > 0 and 1 or 0
end
return answers
"""
"""Takes four numbers for each key (`Told`), returns four (`Heard`).

Who waits longest gets a free place first. Spare places are a share of what is free, so that each worker can have one
as large while one is left for whoever asks.
"""


def claim_arguments(worker: str, told: Iterable[tuple[str, Told]]) -> tuple[list[str], list[str]]:
    """Return the keys and the arguments of `CLAIM`."""
    keys = [WORKERS]
    arguments = [worker, str(ALIVE_S), f"{HOLD_S * 1000:.0f}", str(_WANT_MS), str(_KEEP_MS)]
    for name, entry in told:
        keys.append(f"{PREFIX}:{name}")
        arguments += map(str, entry)
    return keys, arguments


def claim_answers(answer: Sequence[int]) -> list[Heard]:
    """Return what `CLAIM` says of each key, in their order."""
    fours = zip(*[iter(answer)] * 4, strict=True)
    return [Heard(granted, spare, rest, bool(wanted)) for granted, spare, rest, wanted in fours]


__all__ = ["ALIVE_S", "BEAT", "CLAIM", "PREFIX", "WORKERS", "claim_answers", "claim_arguments"]
