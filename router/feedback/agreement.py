"""Whether Bitgear's judges mean what people mean: their verdicts against explicit feedback on the same answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from router.tuning.records import Label, Record

_EXPLICIT = ("thumbs", "score")


class Agreement(NamedTuple):
    """One judge against people."""

    judge: str
    """`shadow:NAME` or `implicit:NAME`."""
    pairs: int
    """Answers on which both spoke."""
    agreed: float
    """Share on which both called the answer good, or both bad (0.5 and above is good)."""
    expected: float
    """Share on which two that judge at random, each as often good as these, would agree."""
    kappa: float | None
    """Cohen's kappa: (agreed - expected) / (1 - expected); None where chance alone agrees always, or without pairs."""


def agreements(records: Iterable[Record]) -> list[Agreement]:
    """Return each judge's agreement with explicit feedback, by name.

    Several people's words on one answer count as their mean. Of a shadow pair the answer is good when it is no worse
    than its reference. Cohen, "A coefficient of agreement for nominal scales", 1960.
    """
    found: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for record in records:
        people = [label.value for label in record.labels if _explicit(label)]
        if not people:
            continue
        good = sum(people) / len(people) >= 0.5
        for label in record.labels:
            if label.source.startswith(("shadow:", "implicit:")):
                found[label.source].append((_good(label), good))
    return [_agreement(judge, pairs) for judge, pairs in sorted(found.items())]


def _explicit(label: Label) -> bool:
    return label.source in _EXPLICIT or label.source.startswith("metric:")


def _good(label: Label) -> bool:
    return label.value >= 0.5 if label.reference is None else label.value >= label.reference


def _agreement(judge: str, pairs: list[tuple[bool, bool]]) -> Agreement:
    n = len(pairs)
    agreed = sum(a == b for a, b in pairs) / n
    ours, theirs = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    expected = ours * theirs + (1 - ours) * (1 - theirs)
    kappa = (agreed - expected) / (1 - expected) if expected < 1.0 else None
    return Agreement(judge, n, agreed, expected, kappa)
