"""One tick of tuning for a group: watch what serves, judge the canary, or run a job. Whoever holds the lease ticks.

Everything that must outlive a crash is in Redis: the control document (thresholds, canary), jobs, each group's state.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from router.control.document import Canary, ControlDocument, GroupTuning
from router.control.store import Conflict
from router.feedback.agreement import agreements
from router.tuning import guard
from router.tuning.analysis import REPLAYED, Verdict, analyse
from router.tuning.books import BY, Books
from router.tuning.calibration import calibrations
from router.tuning.group import Group, Reader, present
from router.tuning.jobs import Documents, Jobs, Status, begun
from router.tuning.load_model import Curve
from router.tuning.replay import Facts
from router.tuning.report import report_of
from router.tuning.retrain import KIND, Retrainer
from router.tuning.trial import Trials
from router.tuning.upkeep import Upkeep

PACE = 20.0
"""A look that took so many seconds of CPU is repeated after this many times as many."""
LONGEST_REST_S = 60.0


class Tuner:
    """Ticks for all groups. `clock` gives Unix seconds; `points` and `replayed` bound a job's candidates and replays.

    Each job's report is also written into `folder`, if there is one, whenever it changes.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        jobs: Jobs,
        documents: Documents,
        read: Reader,
        log: logging.Logger,
        clock: Callable[[], float] = time.time,
        *,
        points: int = 5,
        replayed: int = REPLAYED,
        folder: Path | None = None,
        retrainer: Retrainer | None = None,
    ) -> None:
        self.groups = groups
        self.retrainer = retrainer
        self._jobs = jobs
        self._documents = documents
        self._read = read
        self._log = log
        self._clock = clock
        self._points = points
        self._replayed = replayed
        self._rests: dict[str, float] = {}
        self._books = Books(jobs, documents, log, folder)
        self._upkeep = Upkeep(self._books, clock)
        self._trials = Trials(self._books, self._upkeep, read, log)

    async def tick(self) -> bool:
        """Do for each group what is due; return False when there is nothing left to watch or to wait for.

        Raises the first group's error, once all have had their turn: Conflict, RedisError or OSError.
        """
        busy, failed = False, None
        for name, group in self.groups.items():
            await self._upkeep.lost(name)
            wish = await self._jobs.take_wish(name)
            try:
                await self.tick_group(name, group, wish)
            except (Conflict, RedisError, OSError) as error:
                # Whoever asked still waits: the next tick takes it again. The groups after this one have their turn now.
                if wish is not None:
                    await self._jobs.give_back(name, wish)
                failed = failed or error
                continue
            except Exception as error:
                # Numbers of which nothing can be computed: the other groups' tuning has to go on.
                self._log.exception("tuning failed: group=%s", name)
                self._rests[name] = self._clock() + LONGEST_REST_S
                if wish is not None:
                    await self._upkeep.fail(name, wish, f"{type(error).__name__}: {error}")
            if wish is not None:
                await self._jobs.met(name)
            tuning = (await self._documents.current()).groups.get(name, GroupTuning())
            busy = busy or group.settings.mode != "off" or tuning.canary is not None or await self._jobs.wished([name])
        if failed is not None:
            raise failed
        return busy

    async def tick_group(self, name: str, group: Group, wish: Mapping[str, Any] | None = None) -> None:
        """Do what is due for one group: a wish, the guards, the canary, a scheduled job."""
        document = await self._documents.current()
        tuning = document.groups.get(name, GroupTuning())
        now = self._clock()
        state = await self._upkeep.state(name, now)
        await self._note_classifier(name, tuning, state, now)
        await self._upkeep.ended(name, document, tuning, state, now)
        if wish is not None:
            by, job = str(wish.get("by", BY)), str(wish.get("job", ""))
            if wish.get("kind") == KIND:
                await self.retrain(name, by=by, dry_run=bool(wish.get("dry_run")), job_id=job)
                return
            await self.job(name, by=by, dry_run=bool(wish.get("dry_run")), job_id=job)
            return
        # A rest longer than any is one that a clock began which was set back since.
        if tuning.paused or 0.0 < self._rests.get(name, 0.0) - now <= LONGEST_REST_S:
            return
        began = time.process_time()
        try:
            await self._look(name, group, document, tuning, state, now)
        finally:
            # Reading tens of thousands of records takes seconds: never a core's whole time.
            self._rests[name] = now + min(LONGEST_REST_S, PACE * (time.process_time() - began))

    async def _note_classifier(self, name: str, tuning: GroupTuning, state: dict[str, Any], now: float) -> None:
        """Leave out what was recorded before the group's classifier changed, whoever changed it: risks meant something else."""
        configured = self.retrainer.configured.get(name) if self.retrainer is not None else None
        serves = tuning.classifier or (str(configured.artefact.content["sha256"]) if configured is not None else "")
        known = state.get("classifier")
        if known == serves:
            return
        state["classifier"] = serves
        if known is not None or tuning.classifier:
            state.update(data_since=now, guard_since=now)
            state.pop("expected", None)
        await self._jobs.set_state(name, state)

    async def _look(
        self,
        name: str,
        group: Group,
        document: ControlDocument,
        tuning: GroupTuning,
        state: dict[str, Any],
        now: float,
    ) -> None:
        """Watch what serves, judge the canary, or run a scheduled job."""
        if group.settings.mode == "off":
            # A trial that a person approved is still watched.
            if tuning.canary is not None:
                await self._trials.watch(name, group, document, tuning, tuning.canary, now)
            return
        if await self._guarded(name, group, document, tuning, state, now):
            return
        if tuning.canary is not None:
            await self._trials.watch(name, group, document, tuning, tuning.canary, now)
            return
        if self.retrainer is not None and await self.retrainer.due(name, group.settings, tuning, state):
            await self.retrain(name)
            return
        due = now - float(state.get("job_at", 0.0)) >= group.settings.interval_s
        rested = now - float(state.get("changed_at", 0.0)) >= group.settings.cooldown_s
        if due and rested:
            await self.job(name)

    async def job(
        self, name: str, *, by: str = BY, dry_run: bool = False, why: str = "", job_id: str = ""
    ) -> dict[str, Any]:
        """Run one job: estimate, choose, and publish, propose or refuse. Return it as it was kept."""
        group = self.groups[name]
        settings = group.settings
        document = await self._documents.current()
        tuning = document.groups.get(name, GroupTuning())
        now = self._clock()
        state = await self._upkeep.state(name, now)
        since = max(now - settings.window_s, float(state.get("data_since", 0.0)))
        records = await self._read(name, since, settings.max_records)
        current = present(group, tuning)
        verdict = analyse(records, current, group.facts, settings, points=self._points, replayed=self._replayed)
        job = begun(
            name,
            tuning,
            at=now,
            by=by,
            version=document.version,
            status="refused" if verdict.choice is None else "kept",
            reason=f"{why}: {verdict.reason}" if why else verdict.reason,
            job_id=job_id,
        )
        job.update(canary_share=settings.canary_share, report=report_of(verdict, settings, group.facts, current))
        state["job_at"] = now
        # What operators and every worker's gauges show of it until the next job.
        for name_of, rows in (
            ("judges", [one._asdict() for one in agreements(records)]),
            ("calibration", [one._asdict() for one in calibrations(records, verdict.evidence, group.facts)]),
        ):
            state[name_of] = job["report"][name_of] = rows
        if verdict.choice is not None:
            state["expected"] = {v: [e.mean, e.lower] for v, e in verdict.expected.items()}
            state["curves"] = {v: _finite(c) for v, c in verdict.curves.items()}
        if verdict.choice is not None and verdict.choice.action != "keep":
            job["thresholds"] = dict(verdict.choice.chosen.thresholds)
            job["bounds"] = {p: list(b) for p, b in verdict.choice.bounds.items()}
            if dry_run:
                job["status"] = "dry_run"
            elif (settings.mode != "automatic" and by == BY) or tuning.paused or settings.mode == "manual":
                job["status"] = "proposed"
            elif tuning.canary is not None:
                job.update(status="kept", reason="a canary is on trial already; its end comes first")
            else:
                await self._publish_choice(name, document, tuning, verdict, job, state)
        await self._jobs.set_state(name, state)
        await self._books.save(job)
        self._log.info("tuning job: id=%s group=%s status=%s reason=%r", job["id"], name, job["status"], job["reason"])
        return job

    async def retrain(self, name: str, *, by: str = BY, dry_run: bool = False, job_id: str = "") -> dict[str, Any]:
        """Retrain a group's classifier from its own pairs, where that is better. Return the job as it was kept."""
        group, now = self.groups[name], self._clock()
        state = await self._upkeep.state(name, now)
        tuning = (await self._documents.current()).groups.get(name, GroupTuning())
        if self.retrainer is None:
            raise LookupError("there is nothing to retrain with")
        current = {p: t for p, t in present(group, tuning).items() if p in group.facts.lower}
        job = await self.retrainer.job(name, group.settings, current, by=by, dry_run=dry_run, job_id=job_id)
        if not dry_run:
            state["retrained_at"] = now
        if job["status"] == "published":
            # What was learnt of thresholds and risks before is of another classifier.
            state.update(data_since=now, guard_since=now, changed_at=now)
            state.pop("expected", None)
        await self._jobs.set_state(name, state)
        await self._books.save(job)
        self._log.info("retraining: id=%s group=%s status=%s reason=%r", job["id"], name, job["status"], job["reason"])
        return job

    async def _publish_choice(
        self,
        name: str,
        document: ControlDocument,
        tuning: GroupTuning,
        verdict: Verdict,
        job: dict[str, Any],
        state: dict[str, Any],
    ) -> None:
        choice = verdict.choice
        assert choice is not None
        group, now = self.groups[name], self._clock()
        if choice.action == "tighten":
            # Towards full precision no trial is needed, and waiting would prolong what is wrong.
            made = tuning.model_copy(update={"thresholds": job["thresholds"], "bounds": dict(choice.bounds)})
            job["status"] = "published"
            state["changed_at"] = now
        else:
            trial = Canary(share=group.settings.canary_share, thresholds=job["thresholds"], since=now, job=job["id"])
            made = tuning.model_copy(update={"canary": trial})
            job.update(status="canary", canary_since=now)
            state["trial"] = job["id"]
        job["version"] = await self._books.publish(document, name, made, f"tuning job {job['id']}: {job['reason']}")

    async def _guarded(
        self,
        name: str,
        group: Group,
        document: ControlDocument,
        tuning: GroupTuning,
        state: dict[str, Any],
        now: float,
    ) -> bool:
        """Look at what serves now; return whether something had to be done."""
        settings = group.settings
        since = max(now - settings.window_s, float(state.get("guard_since", 0.0)), float(state.get("data_since", 0.0)))
        records = await self._read(name, since, settings.max_records)
        curves = {v: Curve(*c) for v, c in state.get("curves", {}).items()}
        alarms = guard.watch(records, group.facts, settings, state.get("expected", {}), curves)
        if not alarms:
            return False
        variants = [a.variant for a in alarms if a.kind == "variant"]
        current = present(group, tuning)
        if variants or any(a.kind == "bound" for a in alarms):
            reason = "; ".join(a.reason for a in alarms if a.kind != "speed")
            made = _tightened(tuning, current, group.facts, variants)
            # What was learnt before does not hold any more.
            state.update(data_since=now, guard_since=now, changed_at=now)
            state.pop("expected", None)
        else:
            reason = "; ".join(a.reason for a in alarms)
            last = float(state.get("speed_at", 0.0))
            if tuning.canary is not None or now - last < settings.cooldown_s:
                return False
            state.update(speed_at=now)
            await self._jobs.set_state(name, state)
            await self.job(name, why=reason)
            return True
        status: Status = "published" if settings.mode == "automatic" else "proposed"
        job = begun(name, tuning, at=now, by=BY, version=document.version, status=status, reason=f"guard: {reason}")
        job.update(
            canary_share=settings.canary_share,
            thresholds={str(p): t for p, t in made.thresholds.items()},
            bounds={},
            report={"alarms": [a._asdict() for a in alarms], "records": len(records)},
        )
        if settings.mode == "automatic":
            job["version"] = await self._books.publish(document, name, made, job["reason"])
            if tuning.canary is not None and (stopped := await self._jobs.load(tuning.canary.job)) is not None:
                stopped.update(status="rolled_back", outcome=job["reason"], ended_at=now)
                await self._books.save(stopped)
        await self._jobs.set_state(name, state)
        await self._books.save(job)
        self._log.warning("tuning guard: id=%s group=%s %s", job["id"], name, job["reason"])
        return True


def _tightened(tuning: GroupTuning, current: Mapping[str, float], facts: Facts, variants: Sequence[str]) -> GroupTuning:
    """Return thresholds without the bad variants' precisions (and lower ones, which imply them); none named: half of all."""
    ranks = dict(zip(facts.variants, facts.ranks, strict=True))
    highest = max((ranks[v] for v in variants), default=0.0)
    stopped = {p for p, r in zip(facts.precisions, facts.ranks, strict=True) if r <= highest}
    factor = 0.5 if not variants else 1.0
    thresholds = {p: 0.0 if p in stopped else round(factor * current.get(p, 0.0), 6) for p in facts.lower}
    return tuning.model_copy(update={"thresholds": {**tuning.thresholds, **thresholds}, "bounds": {}, "canary": None})


def _finite(curve: Curve) -> list[float]:
    return [x if math.isfinite(x) else 1e9 for x in curve]
