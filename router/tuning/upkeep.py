"""What keeps jobs' status true: whatever ended a job or a trial, its entry says so soon after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from router.control.document import ControlDocument, GroupTuning
from router.tuning.books import BY, Books
from router.tuning.jobs import begun
from router.tuning.retrain import KIND

_TIMES = frozenset({"job_at", "changed_at", "data_since", "guard_since", "speed_at", "retrained_at"})
"""Unix times in a group's state, seconds."""


class Upkeep:
    """Looks after jobs' entries between two ticks. `clock` gives Unix seconds."""

    def __init__(self, books: Books, clock: Callable[[], float]) -> None:
        self._books = books
        self._jobs = books.jobs
        self._documents = books.documents
        self._clock = clock

    async def state(self, name: str, now: float) -> dict[str, Any]:
        """Return what the last tick left, with no time after now: whoever held the lease may have had another clock."""
        state = await self._jobs.state(name)
        return {key: min(float(value), now) if key in _TIMES else value for key, value in state.items()}

    async def fail(self, name: str, wish: Mapping[str, Any], why: str) -> None:
        """Keep a job that was asked for and came to nothing, unless it is kept already."""
        job_id = str(wish.get("job", ""))
        if job_id and await self._jobs.load(job_id) is not None:
            return
        document = await self._documents.current()
        job = begun(
            name,
            document.groups.get(name, GroupTuning()),
            at=self._clock(),
            by=str(wish.get("by", BY)),
            version=document.version,
            status="failed",
            reason=why[:500],
            job_id=job_id,
        )
        job.update(report={}, **({"kind": KIND} if wish.get("kind") == KIND else {}))
        await self._books.save(job)

    async def lost(self, name: str) -> None:
        """Say of a job that its process died, where one did: begun again by itself it might end this one too."""
        lost = await self._jobs.under_way(name)
        if lost is not None:
            await self.fail(name, lost, "the tuning process ended before the job did; ask again")
            await self._jobs.met(name)

    async def ended(
        self, name: str, document: ControlDocument, tuning: GroupTuning, state: dict[str, Any], now: float
    ) -> None:
        """Say of a trial's job that the trial is over, where another change ended it: thresholds set by hand, a rollback."""
        trial = state.get("trial")
        if trial is None or (tuning.canary is not None and tuning.canary.job == trial):
            return
        del state["trial"]
        await self._jobs.set_state(name, state)
        job = await self._jobs.load(str(trial))
        if job is not None and job.get("status") == "canary":
            outcome = f"another change ended the trial: version {document.version} has none"
            job.update(status="rolled_back", outcome=outcome, ended_at=now)
            await self._books.save(job)


__all__ = ["BY", "Upkeep"]
