"""A conversation's last turn: what other wordings of it may share an answer, and all else of the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.cache.key import has_long_number


def last_turn(raw: bytes, body: Mapping[str, Any]) -> str | None:
    """Return the text of the user's last turn; None where only the exact text will do."""
    messages = body.get("messages")
    if not isinstance(messages, list) or has_long_number(raw):
        return None
    last = messages[-1]
    text = last.get("content")
    return text if last.get("role") == "user" and isinstance(text, str) else None


def without_turn(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request without the text that `last_turn` gives."""
    messages = body["messages"]
    return {**body, "messages": [*messages[:-1], {**messages[-1], "content": None}]}


__all__ = ["last_turn", "without_turn"]
