"""Judges by name: each says of two answers to one request how good they are, or that it cannot tell.

A new one is a file with a function `make`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable

from router.feedback.judges import choice, embedding, llm, match, validity
from router.feedback.judges.pair import Judge, Pair, Tools, Verdict

JUDGES: dict[str, Callable[[Tools], Judge]] = {
    "validity": validity.make,
    "choice": choice.make,
    "match": match.make,
    "embedding": embedding.make,
    "llm": llm.make,
}

__all__ = ["JUDGES", "Judge", "Pair", "Tools", "Verdict"]
