"""What a change would have done to the last hour's recorded decisions."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any

from router.admin.context import Effect
from router.config.runtime import Runtime
from router.control.apply import next_runtime
from router.control.document import ControlDocument

_MOST_EVENTS = 20_000
"""Events that are decided anew: some seconds of another thread."""
_LISTED = 20


def recorded_effect(base: Runtime, recommended: Mapping[str, float], password: str | None) -> Effect | None:
    """Return what asks the recorded events; None where none are recorded."""
    url = base.redis_url
    if url is None or not base.config.events.enabled:
        return None

    def replay(document: ControlDocument, seconds: float) -> dict[str, Any]:
        from router.replay.effect import effect
        from router.replay.source import SourceError, from_stream

        events = from_stream(url, base.config.events.stream, password=password, since=time.time() - seconds)
        config = next_runtime(base, document).config
        try:
            found = effect(itertools.islice(events, _MOST_EVENTS), config, recommended, document, limit=_LISTED)
        except SourceError as error:
            return {"unknown_because": str(error)}
        return found.as_json()

    async def ask(document: ControlDocument, seconds: float) -> dict[str, Any]:
        return await asyncio.to_thread(replay, document, seconds)

    return ask


__all__ = ["recorded_effect"]
