"""A small embedding without a model: hashed words and character trigrams, for how alike two wordings are."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from zlib import crc32

DIMENSIONS = 1 << 16
Vector = dict[int, float]
_WORD = re.compile("[\u4e00-\u9fff]|\\w+|[^\\w\\s]")


def embed(text: str) -> Vector:
    """Return the text's sparse vector of length 1; empty for a text without words."""
    words = _WORD.findall(text.lower())
    counts: Vector = {}
    for word in words:
        _add(counts, "w" + word, 2.0)
        padded = f" {word} "
        for i in range(len(padded) - 2):
            _add(counts, "t" + padded[i : i + 3], 1.0)
    for pair in pairwise(words):
        _add(counts, "p" + " ".join(pair), 1.0)
    length = math.sqrt(sum(v * v for v in counts.values()))
    return {k: v / length for k, v in counts.items()}


def _add(counts: Vector, feature: str, weight: float) -> None:
    slot = crc32(feature.encode()) % DIMENSIONS
    counts[slot] = counts.get(slot, 0.0) + weight


def likeness(a: Vector, b: Vector) -> float:
    """Return the cosine of two vectors, in [0, 1]."""
    if len(a) > len(b):
        a, b = b, a
    return min(1.0, sum(v * b.get(k, 0.0) for k, v in a.items()))
