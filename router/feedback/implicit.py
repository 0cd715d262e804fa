"""What clients say without words: the same request asked again soon, a stream left before its end.

Weak signals: people also leave because they have read enough. Labels say `implicit:*`, and whoever reads them gives
them little weight. Nothing of a request's text is kept, only a hash of it for a while, salted per process.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from router.cache.rules import is_deterministic
from router.feedback.entry import facts_of, label_entry
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT

REGENERATED = "implicit:regeneration"
EARLY_STOP = "implicit:early_stop"
_MOST = 4096
"""Requests remembered per worker."""


class Implicit:
    """Finds such signals among one worker's requests."""

    def __init__(self, regeneration_s: float) -> None:
        self.within_s = regeneration_s
        """Longest time between the two, seconds; 0: nothing is looked for."""
        self._seen: OrderedDict[int, tuple[float, Mapping[str, Any]]] = OrderedDict()

    def digest(self, outcome: Outcome, body: Mapping[str, Any], raw: bytes) -> int | None:
        """Return what a request is recognised by; None where asking again says nothing (a repeatable answer)."""
        if self.within_s <= 0 or outcome.endpoint is not CHAT or is_deterministic(body):
            return None
        return hash((outcome.tenant, raw))

    def labels(self, outcome: Outcome, digest: int | None) -> list[dict[str, Any]]:
        """Return what an ended request says: of the same one before it, or of itself."""
        if outcome.decision is None or outcome.variant is None or outcome.cache == "hit":
            return []
        found = []
        if outcome.error == "client_left" and outcome.stream and outcome.first_token_at is not None:
            found.append(label_entry(facts_of(outcome), EARLY_STOP, 0.0, time.time()))
        if digest is None:
            return found
        before = self._seen.pop(digest, None)
        if before is not None and 0.0 <= outcome.began - before[0] <= self.within_s:
            found.append(label_entry(before[1], REGENERATED, 0.0, time.time()))
        if outcome.ok:
            self._seen[digest] = (outcome.ended, facts_of(outcome))
            if len(self._seen) > _MOST:
                self._seen.popitem(last=False)
        return found
