"""The index by which feedback finds its request: `bitgear:request:TENANT:ID`, written along with the request's event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from router.config.loop import FeedbackConfig
from router.feedback.entry import KEPT
from router.store.events import compact

PREFIX = "bitgear:request"
LATE_S = 3600
"""An entry outlives the window for feedback by this, so that late feedback can be told that it is late, seconds."""


def index_key(tenant: str, request_id: str) -> str:
    """Return the entry's name: the tenant is part of it, so that nobody finds (or overwrites) another's request."""
    return f"{PREFIX}:{tenant}:{request_id}"


class RequestIndex:
    """Makes index entries from events, for as long as feedback is taken."""

    def __init__(self, settings: FeedbackConfig) -> None:
        self.settings = settings
        """Those in force; replaced when they change."""

    def __call__(self, event: Mapping[str, Any]) -> tuple[str, bytes, int] | None:
        """Return (name, JSON, seconds to live); None for a request that no answer was given to, or while feedback is off."""
        if not self.settings.enabled:
            return None
        tenant, status = event.get("tenant"), event.get("status")
        if tenant is None or event.get("variant") is None or not (status == 499 or 200 <= (status or 0) < 300):
            return None
        ttl_s = round(self.settings.window_s) + LATE_S
        return index_key(tenant, event["id"]), compact(orjson.dumps({name: event.get(name) for name in KEPT})), ttl_s
