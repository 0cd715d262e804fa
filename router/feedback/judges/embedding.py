"""Likeness of two answers: the cosine of their embeddings, from any server with `/v1/embeddings`."""

from __future__ import annotations

import math
from typing import Any

from router.feedback.judges.pair import Judge, Pair, Tools, Verdict, text_of

_LONGEST = 8000
"""Characters of an answer that are embedded."""


def cosine(a: list[float], b: list[float]) -> float:
    """Return the cosine, negative ones as 0. Raises ValueError where one is no direction, or they do not match."""
    size = math.hypot(*a) * math.hypot(*b)
    if len(a) != len(b) or not size > 0 or not math.isfinite(size):
        raise ValueError("vectors that cannot be compared")
    return min(1.0, max(0.0, _dot(a, b) / size))


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def make(tools: Tools) -> Judge:
    """Return the judge; without a server it never can tell."""

    async def judge(pair: Pair) -> Verdict | None:
        texts = [text_of(pair.answer)[:_LONGEST], text_of(pair.reference)[:_LONGEST]]
        if tools.embed is None or not texts[1].strip():
            return None
        if not texts[0].strip():
            return Verdict(0.0, 1.0)
        answer: Any = await tools.embed("/v1/embeddings", {"model": tools.embedding_model, "input": texts})
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return Verdict(cosine(rows[0]["embedding"], rows[1]["embedding"]), 1.0)

    return judge
