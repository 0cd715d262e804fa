"""A change's dry run for the admin API: its effect on the decisions recorded lately, beside the hot path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from router.config.runtime import Runtime
from router.control.apply import next_runtime
from router.control.document import ControlDocument
from router.replay.effect import effect
from router.replay.source import SourceError, newest

_MOST = 2000
"""Newest events that are decided anew: a tenth of a second of a thread that shares the interpreter with requests."""
_LISTED = 20


def dry_run(
    base: Runtime, recommended: Mapping[str, float], password: str | None
) -> Callable[[ControlDocument, float], Awaitable[dict[str, Any]]] | None:
    """Return what tells a document's effect on the last so many seconds; None where no events are kept.

    Gives `Effect.as_json()`, or `error` where the events cannot be read. `recommended`: the classifier's thresholds.
    """
    url, stream = base.redis_url, base.config.events.stream
    if url is None or not base.config.events.enabled:
        return None

    async def told(document: ControlDocument, seconds: float) -> dict[str, Any]:
        config = next_runtime(base, document).config

        def work() -> dict[str, Any]:
            events = newest(url, stream, _MOST, password=password, since=time.time() - seconds)
            return effect(events, config, recommended, document, limit=_LISTED).as_json()

        try:
            return await asyncio.to_thread(work)
        except SourceError as error:
            return {"error": str(error)}

    return told
