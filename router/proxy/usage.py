"""Reading token counts out of answers, in the words of each API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import orjson

# Usage objects hold numbers and small objects of numbers, no strings with braces.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')


_MOST = 2**31
"""Tokens that no answer has: estimates and sums would not recover from such a count."""


class Usage(NamedTuple):
    """Tokens of one answer, as its replica counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


def usage_of(value: object) -> Usage | None:
    """Return the usage that a `usage` object of OpenAI's or Anthropic's APIs tells, or None."""
    if not isinstance(value, Mapping):
        return None
    prompt = value.get("prompt_tokens", value.get("input_tokens"))
    completion = value.get("completion_tokens", value.get("output_tokens"))
    if not _is_count(prompt) and not _is_count(completion):
        return None
    return Usage(prompt if _is_count(prompt) else 0, completion if _is_count(completion) else 0)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def usage_of_event(event: Mapping[str, Any], before: Usage | None) -> Usage | None:
    """Return the usage after one stream event: chat and completions chunks, Responses events, Anthropic events."""
    inner = event.get("response") or event.get("message")
    found = usage_of(event.get("usage"))
    if found is None and isinstance(inner, Mapping):
        found = usage_of(inner.get("usage"))
    if found is None:
        return before
    if before is not None and found.prompt_tokens == 0:
        # Anthropic's message_delta tells only the output.
        return Usage(before.prompt_tokens, found.completion_tokens)
    return found


def usage_of_answer(body: bytes) -> Usage | None:
    """Return the usage of a whole JSON answer without parsing the rest of it: the last `usage` object in its bytes."""
    start = body.rfind(b'"usage"')
    while start >= 0:
        match = _USAGE.match(body, start)
        if match is not None:
            try:
                return usage_of(orjson.loads(match[1]))
            except orjson.JSONDecodeError:
                return None
        start = body.rfind(b'"usage"', 0, start)
    return None
