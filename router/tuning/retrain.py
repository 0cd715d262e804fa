"""Retraining a group's classifier from pairs of answers to its own traffic: a tuning job like the one of thresholds.

What is learnt is `classifier.adapt`, which changes nothing unless pairs that it did not see are foretold better. A new
classifier comes as a new version of the control document, so a rollback undoes it; thresholds are carried over to the new
risks so that no larger share of traffic passes them, and the tuning jobs go on from there.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from classifier.artefact import ArtefactError, dump
from classifier.risks import PRECISIONS
from classifier.scoring import Trained
from router.config.loop import TuningConfig
from router.control.artefacts import Artefacts
from router.control.document import GroupTuning
from router.tuning.jobs import Documents, begun
from router.tuning.pairs import LearntPair, Pairs
from router.tuning.service import publish_classifier

if TYPE_CHECKING:
    from classifier.adapt import Adaption, Moved

KIND = "classifier"
MOST_PAIRS = 20_000
ReadPairs = Callable[[str, str, float, int], Awaitable[Pairs]]
"""(group, classifier's version, since in Unix seconds, limit) to the newest pairs."""


class Retrainer:
    """Runs such jobs. `configured`: each group's classifier where the document names none."""

    def __init__(
        self,
        documents: Documents,
        artefacts: Artefacts,
        read: ReadPairs,
        log: logging.Logger,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.configured: Mapping[str, Trained] = {}
        self._documents = documents
        self._artefacts = artefacts
        self._read = read
        self._log = log
        self._clock = clock

    async def due(self, name: str, settings: TuningConfig, tuning: GroupTuning, state: Mapping[str, Any]) -> bool:
        """Return whether enough pairs came since the last time, for a classifier that can be had. Raises RedisError."""
        if not settings.retrain_pairs or name not in self.configured:
            return False
        since = float(state.get("retrained_at", 0.0))
        if self._clock() - since < settings.interval_s:
            return False
        try:
            own = await self._own(name, tuning)
        except ArtefactError:
            return False
        found = await self._read(name, own.artefact.version, since, settings.retrain_pairs)
        return len(found.pairs) >= settings.retrain_pairs

    async def job(
        self,
        name: str,
        settings: TuningConfig,
        current: Mapping[str, float],
        *,
        by: str,
        dry_run: bool,
        job_id: str = "",
    ) -> dict[str, Any]:
        """Run one job; return it as it is to be kept. `current`: thresholds that hold now. Raises RedisError, Conflict."""
        document = await self._documents.current()
        tuning = document.groups.get(name, GroupTuning())
        now = self._clock()
        job = begun(name, tuning, at=now, by=by, version=document.version, status="refused", job_id=job_id)
        job.update(kind=KIND, classifier=None)
        try:
            own = await self._own(name, tuning)
        except ArtefactError as error:
            job["reason"] = str(error)
            return job
        read = await self._read(name, own.artefact.version, now - settings.window_s, MOST_PAIRS)
        told: dict[str, Any] = {
            "from": own.artefact.version,
            "read": {"pairs": len(read.pairs), "of_other_classifiers": read.others, "broken": read.broken},
        }
        job["report"] = {KIND: told}
        try:
            adaption = await asyncio.to_thread(_adapt, own, read.pairs)
        except ImportError as error:
            job["reason"] = f"retraining needs the extra `train` ({error.name} is missing)"
            return job
        except (ValueError, ArithmeticError, LookupError) as error:
            # Numbers of which nothing can be computed: other groups' tuning has to go on.
            self._log.exception("retraining failed: group=%s", name)
            job["reason"] = f"nothing can be computed of these pairs ({type(error).__name__})"
            return job
        told |= adaption.figures
        job["reason"] = adaption.reason
        if adaption.content is None:
            job["status"] = "kept" if "gain" in adaption.figures else "refused"
            return job
        day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
        job["thresholds"] = carried(current, adaption.moved)
        content = {
            **adaption.content,
            "name": f"{name[:40]}-own",
            "date": day,
            "data": f"{len(read.pairs)} pairs",
            # What the old one recommended means nothing on the new risks, whoever takes the tuned ones away.
            "thresholds": {"recommended": dict.fromkeys(PRECISIONS, 0.0) | job["thresholds"]},
        }
        try:
            data, made = dump(content)
        except ArtefactError as error:
            job.update(reason=f"what was learnt makes no artefact: {error}", thresholds=None)
            return job
        told |= {"to": made.version, "kind": made.kind, "thresholds_before": dict(current)}
        if dry_run:
            job["status"] = "dry_run"
            return job
        used = [t.classifier for t in document.groups.values() if t.classifier]
        job["classifier"], _ = await self._artefacts.put(data, used)
        if settings.mode == "automatic" and tuning.canary is None and not tuning.paused:
            job["version"] = (await publish_classifier(self._documents, document, job, by=by)).version
            job["status"] = "published"
        else:
            job["status"] = "proposed"
        return job

    async def _own(self, name: str, tuning: GroupTuning) -> Trained:
        return await self._artefacts.get(tuning.classifier) if tuning.classifier else self.configured[name]


def carried(thresholds: Mapping[str, float], moved: Sequence[Moved]) -> dict[str, float]:
    """Return the highest thresholds on the new risks that no more of the pairs' requests pass than passed the old ones.

    Equal risks pass together or not at all. Never above the highest risk of a pair: pairs come mostly of requests that a
    threshold let through, and say nothing of others. All may go where all might. A precision without pairs gets 0.
    """
    found = {}
    for precision, threshold in thresholds.items():
        rows = [m for m in moved if m.precision == precision]
        whole = sum(m.weight for m in rows)
        share = sum(m.weight for m in rows if m.before <= threshold) / whole if rows else 0.0
        found[precision] = 1.0 if rows and threshold >= 1.0 else _quantile(rows, share * whole)
    return found


def _quantile(rows: Sequence[Moved], weight: float) -> float:
    passed, last = 0.0, 0.0
    # As it will be written: whatever a threshold lets through has to be counted under it.
    for risk, alike in groupby(sorted((_written(row.after), row.weight) for row in rows), key=itemgetter(0)):
        passed += sum(share for _, share in alike)
        if passed > weight + 1e-9:
            break
        last = risk
    return last


def _written(risk: float) -> float:
    return min(1.0, math.ceil(risk * 1e6) / 1e6)


def _adapt(own: Trained, pairs: Sequence[LearntPair]) -> Adaption:
    # NumPy and scikit-learn are an extra, and only this needs them here.
    from classifier.adapt import Seen, adapt

    return adapt(own.artefact, [Seen(*pair) for pair in pairs])


__all__ = ["KIND", "Retrainer", "carried"]
