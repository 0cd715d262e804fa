"""A planted world in which the real tuner lives: records from the world, everything else as in production."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis

from benchmarks.tuning.world import FACTS, World, record, traffic
from router.config.loop import TuningConfig
from router.control.document import GroupTuning
from router.control.store import ControlStore
from router.tuning.group import Group, present
from router.tuning.jobs import Jobs
from router.tuning.records import Record
from router.tuning.tuner import Tuner

SETTINGS = TuningConfig(
    mode="automatic",
    interval_s=1e-3 + 10,
    window_s=1e9,
    cooldown_s=0,
    max_step=0.2,
    min_records=500,
    min_labels=100,
    canary_share=0.2,
    canary_min_records=200,
    canary_max_s=3600,
)


class Lived:
    """Traffic and ticks by turns, in virtual time; `client` is a Redis of its own."""

    def __init__(
        self,
        world: World,
        client: Redis,
        *,
        seed: int = 0,
        settings: TuningConfig = SETTINGS,
        start: Mapping[str, float] | None = None,
    ) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.settings = settings
        self.records: list[Record] = []
        self.now = 1e6
        self.served = 0
        self.store = ControlStore(client)
        self.jobs = Jobs(client)
        group = Group(FACTS, settings, dict(start or {"int8": 0.0, "int4": 0.0}))
        self.group = group
        log = logging.getLogger("planted")
        self.tuner = Tuner(
            {"g": group}, self.jobs, self.store, self._read, log, lambda: self.now, points=4, replayed=1000
        )

    async def _read(self, group: str, since: float, limit: int) -> Sequence[Record]:
        return [r for r in self.records[-limit:] if r.at >= since]

    async def tuning(self) -> GroupTuning:
        """Return what is set now."""
        return (await self.store.current()).groups.get("g", GroupTuning())

    async def thresholds(self) -> dict[str, float]:
        """Return the stable thresholds."""
        return present(self.group, await self.tuning())

    async def live(self, requests: int, chunk: int = 1000) -> None:
        """Serve so many requests, with a tick after each chunk."""
        for _ in range(max(1, requests // chunk)):
            tuning = await self.tuning()
            stable = present(self.group, tuning)
            canary = None
            if tuning.canary is not None:
                canary = (tuning.canary.share, {**stable, **{str(p): t for p, t in tuning.canary.thresholds.items()}})
            arrived = traffic(self.world, chunk, self.rng, self.now)
            made = record(self.world, arrived, stable, self.rng, canary=canary, prefix=f"r{self.served}-")
            self.records.extend(sorted(made, key=lambda r: r.at))
            self.records = self.records[-self.settings.max_records :]
            self.served += chunk
            # The next chunk begins when this one is done.
            self.now = max(r.at for r in made) + 1.0
            await self.tuner.tick()


__all__ = ["SETTINGS", "Lived"]
