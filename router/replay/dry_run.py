"""A change's dry run for the admin API: its effect on the decisions recorded lately, beside the hot path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from router.config.runtime import Runtime
from router.config.schema import Config
from router.control.apply import next_runtime
from router.control.document import ControlDocument
from router.replay.effect import effect
from router.replay.source import SourceError, newest

if TYPE_CHECKING:
    from router.proxy.serving import Serving

_MOST = 2000
"""Newest events that are decided anew: a tenth of a second of a thread that shares the interpreter with requests."""
_LISTED = 20


def dry_run(
    base: Runtime,
    recommended: Mapping[str, float],
    password: str | None,
    serving: Callable[[], Serving] | None = None,
) -> Callable[[ControlDocument, float], Awaitable[dict[str, Any]]] | None:
    """Return what tells a document's effect on the last so many seconds; None where no events are kept.

    Gives `Effect.as_json()`, or `error` where the events cannot be read. `recommended`: the classifier's thresholds.
    `serving`: what serves now, with the classifiers of groups that have their own.
    """
    url, stream = base.redis_url, base.config.events.stream
    if url is None or not base.config.events.enabled:
        return None

    async def told(document: ControlDocument, seconds: float) -> dict[str, Any]:
        config = next_runtime(base, document).config
        now = serving() if serving is not None else None
        own = {name: found.thresholds for name, found in now.classifiers.items()} if now is not None else {}
        strange = _changed(now, config, document) if now is not None else frozenset()

        def work() -> dict[str, Any]:
            events = newest(url, stream, _MOST, password=password, since=time.time() - seconds)
            return effect(events, config, recommended, document, limit=_LISTED, own=own, strange=strange).as_json()

        try:
            return await asyncio.to_thread(work)
        except SourceError as error:
            return {"error": str(error)}

    return told


def _changed(now: Serving, config: Config, document: ControlDocument) -> frozenset[str]:
    """Return the groups that would have another classifier than now."""

    def named(settings: Config, tuned: ControlDocument, name: str) -> tuple[str, str | None]:
        group, tuning = settings.groups.get(name), tuned.groups.get(name)
        digest = tuning.classifier if tuning is not None else ""
        return digest, None if digest or group is None else group.classifier

    names = {*config.groups, *document.groups, *now.document.groups}
    return frozenset(n for n in names if named(config, document, n) != named(now.config, now.document, n))
