"""What the admin API's routes work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from router.config.runtime import Runtime
from router.control.artefacts import Artefacts
from router.control.document import ControlDocument
from router.control.follow import FollowStats
from router.control.store import ControlStore
from router.proxy.serving import Serving
from router.store.events import SinkStats
from router.telemetry import Metrics


class TuningControl(Protocol):
    """What operators may do with tuning; errors have the HTTP status in `status`."""

    async def status(self) -> dict[str, Any]:
        """Return every group's tuning, its canary, and the last jobs."""

    async def jobs(self, group: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return the newest jobs first."""

    async def report(self, job_id: str) -> dict[str, Any]:
        """Return one job with its report."""

    async def start(
        self, group: str, by: str, *, dry_run: bool = False, kind: Literal["thresholds", "classifier"] = "thresholds"
    ) -> dict[str, Any]:
        """Ask for a job now."""

    async def pause(self, group: str, by: str, *, paused: bool = True) -> dict[str, Any]:
        """Keep jobs from changing a group, or let them again."""

    async def approve(self, job_id: str, by: str) -> dict[str, Any]:
        """Put a proposed change on trial."""

    async def reject(self, job_id: str, by: str) -> dict[str, Any]:
        """Refuse a proposed change, or end its canary."""


Effect = Callable[[ControlDocument, float], Awaitable[dict[str, Any]]]
"""What a document would have changed for the recorded decisions of the last so many seconds."""


@dataclass(frozen=True)
class Admin:
    """One worker, as its operator reaches it."""

    serving: Callable[[], Serving]
    """What requests are served with now."""
    base: Runtime
    """What the worker's own file says."""
    metrics: Metrics
    sink_stats: Callable[[], SinkStats]
    update_metrics: Callable[[], None]
    store: ControlStore | None
    """None: there is no Redis, and nothing can be changed."""
    follow: Callable[[], FollowStats]
    look: Callable[[], Awaitable[None]]
    """Follow a new version at once."""
    check: Callable[[ControlDocument], Awaitable[None]]
    """Raise BadDocument where a document cannot be applied."""
    artefacts: Artefacts
    """Classifiers of single groups."""
    tuning: TuningControl | None = None
    effect: Effect | None = None
