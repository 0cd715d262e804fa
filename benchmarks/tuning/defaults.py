"""Does the loop decide at default settings? `python -m benchmarks.tuning.defaults [--hours 6] [--json FILE]`.

The real tuner with every setting at its default (2% explored, 2% answered twice, of explored requests and a canary's
all, hourly jobs, a canary of 10% for at most an hour) in the planted world at 9 requests/s, in virtual time, from
thresholds 0. Printed: each job, when it came, and when it was decided, in requests. Judges tell by degrees or, as
`match` does, only same or not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.tuning.lived import Lived
from benchmarks.tuning.world import World, truth
from router.config.loop import ExplorationConfig, ShadowConfig, TuningConfig
from router.store.valkey import PrivateValkey

CHUNK = 4000


async def live(hours: float, whole: bool, url: str) -> dict[str, Any]:
    """Return the jobs of so many hours, and what the last thresholds really do."""
    shadow = ShadowConfig()
    world = World(
        explore=ExplorationConfig().effective_share("automatic"),
        shadow=shadow.effective_share("automatic"),
        trial=shadow.trial_share,
        lower_share=shadow.lower_share,
        whole=whole,
    )
    async with Redis.from_url(url) as client:
        await client.flushall()
        lived = Lived(world, client, settings=TuningConfig(mode="automatic"))
        start, seen = lived.now, dict[str, dict[str, Any]]()
        while lived.now - start < hours * 3600:
            await lived.live(CHUNK, CHUNK)
            for job in await lived.jobs.recent():
                whole_job = await lived.jobs.load(job["id"]) or {}
                known = seen.setdefault(job["id"], {"began": lived.served})
                if known.get("status") != job["status"]:
                    report = whole_job.get("report", {})
                    known.update(
                        status=job["status"],
                        decided=lived.served,
                        labels=report.get("labels"),
                        trial_labels=whole_job.get("trial", {}).get("labels"),
                        why=whole_job.get("outcome") or job["reason"],
                        thresholds=whole_job.get("thresholds"),
                    )
                    print(f"{lived.served:>7} requests: job {job['id']} {job['status']}: {known['why']}", flush=True)
        thresholds = await lived.thresholds()
        first, last = (truth(world, t, count=4000) for t in ({"int8": 0.0, "int4": 0.0}, thresholds))
        return {
            "judge": "same or not" if whole else "by degrees",
            "requests": lived.served,
            "jobs": list(seen.values()),
            "thresholds": thresholds,
            "goodput": [first.goodput, last.goodput],
            "quality": last.quality,
            "bound": -lived.settings.margin * world.level,
        }


def main() -> None:
    """Run both judges and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--judge", choices=("degrees", "whole", "both"), default="both")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        server = PrivateValkey(Path(folder) / "state", max_memory_mib=64)
        server.start()
        try:
            for whole in (False, True):
                if arguments.judge in ("both", "whole" if whole else "degrees"):
                    found.append(asyncio.run(live(arguments.hours, whole, server.url)))
                    last = {k: v for k, v in found[-1].items() if k != "jobs"}
                    print(last, flush=True)
        finally:
            server.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
