"""A canary's trial: read what it did, judge it (`canary`), and promote it or roll it back."""

from __future__ import annotations

import logging
from functools import partial

from router.control.document import Canary, ControlDocument, GroupTuning
from router.tuning import canary as trials
from router.tuning.analysis import value
from router.tuning.books import Books
from router.tuning.estimators import DECIDES
from router.tuning.group import Group, Reader
from router.tuning.upkeep import Upkeep


class Trials:
    """Watches the canaries of all groups. `read` gives a group's records."""

    def __init__(self, books: Books, upkeep: Upkeep, read: Reader, log: logging.Logger) -> None:
        self._books = books
        self._upkeep = upkeep
        self._read = read
        self._log = log

    async def watch(
        self, name: str, group: Group, document: ControlDocument, tuning: GroupTuning, canary: Canary, now: float
    ) -> None:
        """Judge the canary on what is recorded of it so far; promote it, roll it back, or let it go on."""
        job = await self._books.jobs.load(canary.job) or {
            "id": canary.job,
            "group": name,
            "at": canary.since,
            "status": "canary",
            "report": {},
        }
        state = await self._upkeep.state(name, now)
        if state.get("trial") != canary.job:
            state["trial"] = canary.job
            await self._books.jobs.set_state(name, state)
        settings = group.settings
        since = max(now - settings.window_s, float(state.get("data_since", 0.0)))
        records = await self._read(name, since, settings.max_records)
        part = trials.stretch(records, canary.since, now, job.get("stretch"))
        job["stretch"] = list(part)
        facts, began = group.facts, canary.since
        judge = partial(trials.judge, records, facts, settings, since=part.since, number=part.number, began=began)
        trial = judge(now=now)
        look = int(job.get("looks", 0))
        if trial.verdict == "continue" and trial.requests >= settings.canary_min_records * 2**look:
            # Look k = 1, 2, ...: its lower bound at level alpha / 2^(k+1) on that side, all looks together at half of alpha.
            job["looks"] = look + 1
            confidence = 1.0 - (1.0 - settings.confidence) / 2 ** (look + 1)
            estimates, level = value(
                records, {str(p): t for p, t in canary.thresholds.items()}, group.facts, settings, confidence
            )
            holds = estimates[DECIDES].lower >= -settings.margin * level
            trial = judge(now=now, pooled_holds=holds)
        job["trial"] = trials.told(trial)
        if trial.verdict == "continue":
            # The look took its time: what a person said of the job meanwhile holds.
            meanwhile = await self._books.jobs.load(canary.job)
            if meanwhile is not None and meanwhile.get("status") == "rejected":
                return
        else:
            if trial.verdict == "promote":
                bounds = {p: tuple(b) for p, b in (job.get("bounds") or {}).items()}
                update = {"thresholds": dict(canary.thresholds), "bounds": bounds, "canary": None}
                job["status"] = "promoted"
            else:
                update = {"canary": None}
                job["status"] = "rolled_back"
            reason = f"tuning job {canary.job} {job['status'].replace('_', ' ')}: {trial.reason}"
            job["version"] = await self._books.publish(document, name, tuning.model_copy(update=update), reason)
            job.update(ended_at=now, outcome=trial.reason)
            state.update(changed_at=now, guard_since=now)
            state.pop("trial", None)
            await self._books.jobs.set_state(name, state)
            self._log.info("canary ended: id=%s group=%s %s: %s", canary.job, name, job["status"], trial.reason)
        await self._books.save(job)
