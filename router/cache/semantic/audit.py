"""How often answers to other wordings are wrong, measured on a share of them, and the threshold that follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from router.cache.semantic.vector import embed, likeness

STEP = 0.05
ENOUGH = 20
"""Checks before a share is believed; until then the first wrong one is one too many."""
ALIKE = 0.5
"""Likeness of two answers that say the same, as far as their words tell."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Audit:
    """The threshold of one group; it only ever rises. Above 1 nothing is alike enough any more.

    The books are in Redis, for all workers and over restarts; while it is away a worker counts for itself.
    """

    def __init__(self, threshold: float, max_wrong: float) -> None:
        self.base = threshold
        self.threshold = threshold
        self._max_wrong = max_wrong
        self.checked = 0
        self.wrong = 0

    def arguments(self, found: str) -> tuple[str, ...]:
        """Return what the script AUDIT takes: `found` is `look`, `0` (agreed) or `1` (wrong)."""
        return (f"{self.base:.6f}", found, str(STEP), str(self._max_wrong), str(ENOUGH))

    def take(self, told: Sequence[bytes | int]) -> bool:
        """Take over what the books in Redis say; return True when the last check raised the threshold."""
        threshold, checked, wrong, raised = told
        self.threshold, self.checked, self.wrong = float(threshold), int(checked), int(wrong)
        return bool(raised)

    def record(self, agreed: bool) -> bool:
        """Take in one check; return True when it raised the threshold (and the count begins anew)."""
        self.checked += 1
        self.wrong += not agreed
        if agreed or self.wrong <= self._max_wrong * max(self.checked, ENOUGH):
            return False
        self.threshold = round(self.threshold + STEP, 6)
        self.checked = self.wrong = 0
        return True


def agree(old: bytes, fresh: bytes) -> bool:
    """Return whether two plain answers say the same, by their words: the same numbers in order, and alike.

    No judge of meaning: two right answers in very different words count as disagreeing, which errs on the safe side.
    """
    a, b = _said(old), _said(fresh)
    if a == b:
        return True
    if _NUMBER.findall(a) != _NUMBER.findall(b):
        return False
    return likeness(embed(a), embed(b)) >= ALIKE


def _said(body: bytes) -> str:
    choices: list[dict[str, Any]] = orjson.loads(body)["choices"]
    parts: list[str] = []
    for choice in choices:
        message = choice.get("message") or {}
        parts.append(str(message.get("content") or ""))
        for call in message.get("tool_calls") or []:
            parts.append(orjson.dumps(call.get("function"), option=orjson.OPT_SORT_KEYS).decode())
    return "\n".join(parts)
