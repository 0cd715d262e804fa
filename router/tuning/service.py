"""What the admin API does with tuning: start, status, pause, approve, reject, report. Nothing here computes.

Each call is a few commands to Redis. `documents` is the control store. Errors are `TuningError` with an HTTP status.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Literal

from router.control.document import Canary, ControlDocument, GroupTuning
from router.tuning.jobs import WISHES, Documents, Jobs, new_id


class TuningError(Exception):
    """A request that cannot be met; `status` is the HTTP status for it."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status


class TuningService:
    """Tuning as an operator sees it. `groups` are the known groups."""

    def __init__(self, jobs: Jobs, documents: Documents, groups: Collection[str]) -> None:
        self._jobs = jobs
        self._documents = documents
        self._groups = frozenset(groups)

    async def start(
        self, group: str, by: str, *, dry_run: bool = False, kind: Literal["thresholds", "classifier"] = "thresholds"
    ) -> dict[str, Any]:
        """Ask for a job now: of thresholds, or one that retrains the group's classifier; whoever holds the tuning lease runs it within seconds, after those asked for before.

        `job`: the id that it will have; `waiting`: how many jobs of the group wait, with this one. Raises TuningError 409 where too many do.
        """
        self._known(group)
        job = new_id()
        waiting = await self._jobs.wish(group, by, dry_run, job, kind)
        if not waiting:
            raise TuningError(f"{WISHES} jobs of {group} wait already; ask again when one has ended")
        return {"group": group, "accepted": True, "dry_run": dry_run, "job": job, "waiting": waiting}

    async def status(self) -> dict[str, Any]:
        """Return every group's tuning, its canary, the last jobs, and what the newest said of judges and risks."""
        document = await self._documents.current()
        groups = {}
        for name in sorted(self._groups):
            state = await self._jobs.state(name)
            groups[name] = {
                **document.groups.get(name, GroupTuning()).model_dump(mode="json"),
                "judges": state.get("judges", []),
                "calibration": state.get("calibration", []),
                "jobs": await self._jobs.recent(name, 5),
            }
        return {"version": document.version, "groups": groups}

    async def pause(self, group: str, by: str, *, paused: bool = True) -> dict[str, Any]:
        """Keep jobs from changing a group, or let them again; a running canary stays as it is."""
        document = await self._documents.current()
        tuning = self._tuning(document, group)
        if tuning.paused == paused:
            return {"group": group, "paused": paused, "version": document.version}
        reason = f"tuning of {group} {'paused' if paused else 'resumed'}"
        made = await self._publish(document, group, tuning.model_copy(update={"paused": paused}), by, reason)
        return {"group": group, "paused": paused, "version": made.version}

    async def approve(self, job_id: str, by: str) -> dict[str, Any]:
        """Put a proposed change on trial; one towards full precision holds at once, and ends a trial. Refused when something else has changed the group since."""
        job = await self.report(job_id)
        if job["status"] != "proposed":
            raise TuningError(f"job {job_id} is {job['status']}, not proposed")
        document = await self._documents.current()
        group = str(job["group"])
        tuning = self._tuning(document, group)
        if job.get("kind") == "classifier":
            return await self._approve_classifier(document, tuning, job, by)
        if _tightens(job):
            return await self._approve_tightening(document, tuning, job, by)
        if tuning.canary is not None:
            raise TuningError(f"{group} has a canary already (job {tuning.canary.job})")
        _check_unchanged(tuning, job)
        now = time.time()
        canary = Canary(share=job["canary_share"], thresholds=job["thresholds"], since=now, job=job_id)
        made = await self._publish(
            document, group, tuning.model_copy(update={"canary": canary}), by, f"tuning job {job_id} approved"
        )
        job.update(status="canary", version=made.version, approved_by=by, canary_since=now)
        await self._jobs.save(job)
        return {"id": job_id, "status": "canary", "version": made.version}

    async def _approve_tightening(
        self, document: ControlDocument, tuning: GroupTuning, job: dict[str, Any], by: str
    ) -> dict[str, Any]:
        # A trial would prolong what is wrong, as it would where no person is asked.
        _check_unchanged(tuning, job)
        bounds = {precision: tuple(pair) for precision, pair in (job.get("bounds") or {}).items()}
        update = {"thresholds": dict(job["thresholds"]), "bounds": bounds, "canary": None}
        reason = f"tuning job {job['id']} approved"
        made = await self._publish(document, str(job["group"]), tuning.model_copy(update=update), by, reason)
        job.update(status="published", version=made.version, approved_by=by)
        await self._jobs.save(job)
        return {"id": job["id"], "status": "published", "version": made.version}

    async def _approve_classifier(
        self, document: ControlDocument, tuning: GroupTuning, job: dict[str, Any], by: str
    ) -> dict[str, Any]:
        _check_unchanged(tuning, job)
        made = await publish_classifier(self._documents, document, job, by=by)
        job.update(status="published", version=made.version, approved_by=by)
        await self._jobs.save(job)
        return {"id": job["id"], "status": "published", "version": made.version}

    async def reject(self, job_id: str, by: str) -> dict[str, Any]:
        """Refuse a proposed change, or end its canary."""
        job = await self.report(job_id)
        version = job.get("version")
        document = await self._documents.current()
        tuning = document.groups.get(str(job["group"]), GroupTuning())
        # The document says what is on trial: who approved the job may have died before the job said so.
        if tuning.canary is not None and tuning.canary.job == job_id:
            ended = tuning.model_copy(update={"canary": None})
            made = await self._publish(document, str(job["group"]), ended, by, f"tuning job {job_id} rejected")
            version = made.version
        elif job["status"] not in ("proposed", "canary"):
            raise TuningError(f"job {job_id} is {job['status']}: nothing to reject")
        job.update(status="rejected", version=version, rejected_by=by)
        await self._jobs.save(job)
        return {"id": job_id, "status": "rejected", "version": version}

    async def report(self, job_id: str) -> dict[str, Any]:
        """Return a job with its whole report (`router.tuning.report.markdown` writes it for people)."""
        job = await self._jobs.load(job_id)
        if job is None:
            raise TuningError(f"there is no tuning job {job_id}", 404)
        return job

    async def jobs(self, group: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Return the newest jobs first, without their reports."""
        return await self._jobs.recent(group, limit)

    def _known(self, group: str) -> None:
        if group not in self._groups:
            raise TuningError(f"there is no group {group}", 404)

    def _tuning(self, document: ControlDocument, group: str) -> GroupTuning:
        self._known(group)
        return document.groups.get(group, GroupTuning())

    async def _publish(
        self, document: ControlDocument, group: str, tuning: GroupTuning, by: str, reason: str
    ) -> ControlDocument:
        return await self._documents.publish(
            changed(document, group, tuning, by=by, reason=reason), expected=document.version
        )


def _tightens(job: Mapping[str, Any]) -> bool:
    """Return whether a job's thresholds go towards full precision: its own choice, or a guard's alarm."""
    report = job.get("report") or {}
    return report.get("action") == "tighten" or bool(report.get("alarms"))


def _check_unchanged(tuning: GroupTuning, job: Mapping[str, Any]) -> None:
    """Raise TuningError where the group is not as it was when the job began: its thresholds mean risks of one classifier."""
    now = tuning.model_dump(mode="json")
    if (now["classifier"], now["thresholds"]) != (job.get("base_classifier", ""), job["base_thresholds"]):
        raise TuningError(f"{job['group']} was changed since job {job['id']}; start a new one")


def changed(document: ControlDocument, group: str, tuning: GroupTuning, *, by: str, reason: str) -> ControlDocument:
    """Return the next version with one group's tuning set."""
    return document.model_copy(
        update={
            "version": document.version + 1,
            "base": document.version,
            "at": time.time(),
            "by": by,
            "reason": reason,
            "groups": {**document.groups, group: tuning},
        }
    )


async def publish_classifier(
    documents: Documents, document: ControlDocument, job: Mapping[str, Any], *, by: str
) -> ControlDocument:
    """Make a version with a job's classifier and thresholds; canary and bounds, made for other risks, end.

    Raises Conflict, RedisError.
    """
    name = str(job["group"])
    update = {"classifier": job["classifier"], "thresholds": job["thresholds"], "bounds": {}, "canary": None}
    tuning = document.groups.get(name, GroupTuning()).model_copy(update=update)
    reason = f"tuning job {job['id']}: {job['reason']}"[:500]
    return await documents.publish(changed(document, name, tuning, by=by, reason=reason), expected=document.version)
