"""What tuning keeps in Redis: jobs with their reports, wishes for a job, each group's state, and the lease to tune."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import orjson
from redis.asyncio import Redis

from router.control.document import ControlDocument, GroupTuning

PREFIX = "bitgear:tuning:"
KEPT_S = 30 * 86_400
LISTED = 200
"""Newest jobs that the list names."""
WISH_S = 600
WISHES = 8
"""Most wishes of one group that wait; one more is refused."""

Status = Literal[
    "refused", "kept", "dry_run", "proposed", "rejected", "canary", "promoted", "rolled_back", "published", "failed"
]
"""refused: too little data; kept: nothing better; proposed: waits for a person; published: a tightening, without canary."""

_RENEW = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
)
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

_WISH = (
    "if redis.call('llen', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end "
    "local n = redis.call('rpush', KEYS[1], ARGV[1]) redis.call('expire', KEYS[1], ARGV[3]) return n"
)


class Documents(Protocol):
    """Where the control document lives; `router.control.store.ControlStore` is one."""

    async def current(self) -> ControlDocument:
        """Return the newest version."""

    async def publish(self, document: ControlDocument, *, expected: int) -> ControlDocument:
        """Make `document` the newest version if `expected` still is; raise otherwise."""


class Jobs:
    """Jobs and state in Redis. Raises RedisError when it is away."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    async def save(self, job: Mapping[str, Any]) -> None:
        """Keep a job (its `id` names it) for 30 days, and list it when it is new."""
        name = str(job["id"])
        data = orjson.dumps(job, option=orjson.OPT_NON_STR_KEYS)
        new = await self.client.set(f"{PREFIX}job:{name}", data, ex=KEPT_S, nx=True)
        if not new:
            await self.client.set(f"{PREFIX}job:{name}", data, ex=KEPT_S)
            return
        async with self.client.pipeline(transaction=True) as pipe:
            pipe.lpush(f"{PREFIX}jobs", name)
            pipe.ltrim(f"{PREFIX}jobs", 0, LISTED - 1)
            await pipe.execute()

    async def load(self, name: str) -> dict[str, Any] | None:
        """Return a job, or None."""
        return _read(await self.client.get(f"{PREFIX}job:{name}"))

    async def recent(self, group: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return the newest jobs first, without their reports' tables."""
        found: list[dict[str, Any]] = []
        for name in await self.client.lrange(f"{PREFIX}jobs", 0, LISTED - 1):
            job = await self.load(name.decode() if isinstance(name, bytes) else name)
            if job is not None and (group is None or job.get("group") == group):
                found.append(
                    {k: job.get(k) for k in ("id", "kind", "group", "at", "status", "reason", "version", "by")}
                )
            if len(found) >= limit:
                break
        return found

    async def wish(self, group: str, by: str, dry_run: bool, job: str = "", kind: str = "thresholds") -> int:
        """Ask for a job of a group; whoever holds the lease takes the wishes in turn, one a tick.

        `job`: the id that it shall have; empty: any. `kind`: what it looks for, `thresholds` or `classifier`. Return how many wait with this one; 0: `WISHES` wait already, and this one does not. All are forgotten
        `WISH_S` seconds after the newest.
        """
        wish = orjson.dumps({"by": by, "dry_run": dry_run, "job": job, "kind": kind})
        return int(await self.client.eval(_WISH, 1, f"{PREFIX}wishes:{group}", wish, WISHES, WISH_S))

    async def take_wish(self, group: str) -> dict[str, Any] | None:
        """Return and forget the oldest wish for a group; until `met` or `give_back` it is the one under way."""
        taken = await self.client.lpop(f"{PREFIX}wishes:{group}")
        if taken is None or isinstance(taken, list):
            return None
        await self.client.set(f"{PREFIX}doing:{group}", taken, ex=KEPT_S)
        return _read(taken)

    async def under_way(self, group: str) -> dict[str, Any] | None:
        """Return the wish that was taken and neither met nor given back: for whoever begins, one of a process that died."""
        return _read(await self.client.get(f"{PREFIX}doing:{group}"))

    async def met(self, group: str) -> None:
        """Forget the wish under way: its job is kept."""
        await self.client.delete(f"{PREFIX}doing:{group}")

    async def give_back(self, group: str, wish: Mapping[str, Any]) -> None:
        """Put a wish that was taken in vain before all others."""
        key = f"{PREFIX}wishes:{group}"
        async with self.client.pipeline(transaction=True) as pipe:
            pipe.lpush(key, orjson.dumps(wish))
            pipe.expire(key, WISH_S)
            await pipe.execute()
        await self.met(group)

    async def wished(self, groups: Sequence[str]) -> bool:
        """Return whether a wish waits."""
        return bool(groups) and await self.client.exists(*(f"{PREFIX}wishes:{g}" for g in groups)) > 0

    async def state(self, group: str) -> dict[str, Any]:
        """Return what the last tick left for the next one."""
        return _read(await self.client.get(f"{PREFIX}state:{group}")) or {}

    async def set_state(self, group: str, state: Mapping[str, Any]) -> None:
        """Keep a group's state."""
        await self.client.set(f"{PREFIX}state:{group}", orjson.dumps(state))


class Lease:
    """The right to tune: one holder at a time, gone `ttl_s` after its holder crashed."""

    def __init__(self, client: Redis, ttl_s: float = 15.0, token: str | None = None) -> None:
        self._client = client
        self._ttl_ms = max(1, round(ttl_s * 1000))
        self.token = token or secrets.token_hex(8)

    async def take(self) -> bool:
        """Take the lease or renew it; return whether it is held."""
        key = f"{PREFIX}lease"
        if await self._client.set(key, self.token, nx=True, px=self._ttl_ms):
            return True
        return bool(await self._client.eval(_RENEW, 1, key, self.token, self._ttl_ms))

    async def release(self) -> None:
        """Give it back, if it is held."""
        await self._client.eval(_RELEASE, 1, f"{PREFIX}lease", self.token)


def begun(
    group: str,
    tuning: GroupTuning,
    *,
    at: float,
    by: str,
    version: int,
    status: Status,
    reason: str = "",
    job_id: str = "",
) -> dict[str, Any]:
    """Return a job that has found nothing yet. `tuning` is the group's, of the document's `version`, at its beginning."""
    return {
        "id": job_id or new_id(),
        "group": group,
        "at": at,
        "by": by,
        "status": status,
        "reason": reason,
        "version": version,
        "base_thresholds": tuning.model_dump(mode="json")["thresholds"],
        "base_classifier": tuning.classifier,
        "thresholds": None,
        "bounds": None,
    }


def new_id() -> str:
    """Return a job's id: 12 hexadecimal digits."""
    return secrets.token_hex(6)


def _read(data: bytes | str | None) -> dict[str, Any] | None:
    return None if data is None else dict(orjson.loads(data))
