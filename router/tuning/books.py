"""Where tuning writes: jobs and their reports, and new versions of the control document."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from router.control.document import ControlDocument, GroupTuning
from router.tuning.jobs import Documents, Jobs
from router.tuning.report import keep
from router.tuning.service import changed

BY = "tuning"
"""Who changes the control document where no person asked."""


class Books:
    """Keeps jobs in Redis, and each one's report also in `folder`, if there is one, whenever it changes."""

    def __init__(self, jobs: Jobs, documents: Documents, log: logging.Logger, folder: Path | None = None) -> None:
        self.jobs = jobs
        self.documents = documents
        self._log = log
        self._folder = folder

    async def save(self, job: Mapping[str, Any]) -> None:
        """Keep a job. Raises RedisError or OSError where Redis is away."""
        await self.jobs.save(job)
        if self._folder is None:
            return
        try:
            await asyncio.to_thread(keep, job, self._folder)
        except OSError as error:
            # Redis has the report; a full disk stops no tuning.
            self._log.warning("tuning: the report of job %s is not written: %s", job["id"], error)

    async def publish(self, document: ControlDocument, name: str, tuning: GroupTuning, reason: str) -> int:
        """Publish a group's tuning as the version after `document`; return its number. Raises Conflict."""
        made = changed(document, name, tuning, by=BY, reason=reason[:500])
        return (await self.documents.publish(made, expected=document.version)).version
