"""Which models a blend is made of and how many of them count: chosen on training rows alone.

Every candidate is judged by prompts that its members did not see: folds by group, and, where the rows come from several
benchmarks, each benchmark by members fitted on the others, since a router meets prompts unlike those it learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from classifier.evaluate import Array
from classifier.folds import group_folds
from classifier.models import build

if TYPE_CHECKING:
    from classifier.fit import Examples

MEMBERS = ("growing", "linear", "trees", "words", "length")
"""What a blend may be made of; `growing` always is, because text added to a request can only raise it."""
FALLBACK = ("growing", "linear", "trees", "words")
"""With two that count: for so few rows that nothing can be held out."""
_FOLDS = 3
_CLIP = 3.0
_LEAST_ROWS = 30

Fitter = Callable[["Examples", int], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Choice:
    """Members, how many of the highest scores count, and what the choice was worth on prompts held out of the training rows."""

    members: tuple[str, ...]
    kept: int
    lift: float


def candidates() -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return what is chosen from: `growing` with any others; the two or three highest count, or all."""
    found = []
    for size in range(1, len(MEMBERS)):
        for others in combinations(MEMBERS[1:], size):
            members = (MEMBERS[0], *others)
            found += [(members, kept) for kept in sorted({2, min(3, len(members)), len(members)})]
    return tuple(found)


def lift(score: Array, target: Array) -> float:
    """Return how much more than chance an order finds, in standard deviations of the target.

    The mean over shares `a` of the sum of the centred targets among the share `a` of rows with the highest scores, per row.
    Within one benchmark it rises and falls with APGR, and unlike APGR it needs no positive total.
    """
    spread = float(target.std())
    if spread == 0.0:
        return 0.0
    ordered = (target - target.mean())[np.argsort(-score, kind="stable")]
    return float(np.cumsum(ordered).mean()) / len(target) / spread


def choose(examples: Examples, fitters: Mapping[str, Fitter], seed: int = 0) -> Choice:
    """Return the candidate whose held-out lift is highest, each benchmark and each way to hold out counting the same."""
    sources = np.array(examples.sources or [""] * len(examples.target))
    judged: list[tuple[Array, Array, float]] = []
    for kept, test, weight in _splits(examples, sources, seed):
        scores = standardised(examples, kept, test, fitters, seed)
        for name in np.unique(sources[test]):
            rows = sources[test] == name
            if rows.sum() >= _LEAST_ROWS // 3:
                judged.append((scores[rows], examples.target[test][rows], weight))
    if not judged:
        return Choice(FALLBACK, 2, 0.0)
    best = Choice((), 0, -np.inf)
    for members, count in candidates():
        columns = [MEMBERS.index(name) for name in members]
        worth = [weight * lift(blended(scores[:, columns], count), target) for scores, target, weight in judged]
        mean = float(np.sum(worth) / np.sum([weight for _, _, weight in judged]))
        if mean > best.lift + 1e-12:
            best = Choice(members, count, mean)
    return best


def blended(scores: Array, kept: int) -> Array:
    """Return what a blend makes of standardised scores, a row each."""
    highest = np.sort(np.clip(scores, -_CLIP, _CLIP), axis=1)[:, -kept:]
    return np.asarray(highest.mean(axis=1), dtype=np.float64)


def standardised(
    examples: Examples, kept: Sequence[int], test: Sequence[int], fitters: Mapping[str, Fitter], seed: int
) -> Array:
    """Return each member's scores of the rows `test`, fitted on the rows `kept` and standardised there."""
    part, rows = examples.part(kept), [examples.features[i] for i in test]
    columns = []
    for name in MEMBERS:
        model = build(name, fitters[name](part, seed))
        known = np.array([model.score(item) for item in part.features])
        found = np.array([model.score(item) for item in rows])
        columns.append((found - known.mean()) / (known.std() or 1.0))
    return np.stack(columns, axis=1)


def _splits(examples: Examples, sources: Any, seed: int) -> list[tuple[list[int], list[int], float]]:
    """Rows to fit on, rows to judge by, and what each benchmark among the latter counts."""
    fold = group_folds(examples.groups, _FOLDS, seed)
    found = [(fold != number, fold == number, 1.0) for number in range(_FOLDS)]
    names = [name for name in np.unique(sources) if (sources == name).sum() >= _LEAST_ROWS]
    if len(names) > 1:
        # A benchmark is judged once when left out and `_FOLDS` times in folds: either way counts the same.
        found += [(sources != name, sources == name, float(_FOLDS)) for name in names]
    return [
        (np.flatnonzero(kept).tolist(), np.flatnonzero(test).tolist(), weight)
        for kept, test, weight in found
        if kept.sum() >= _LEAST_ROWS and test.sum() >= _LEAST_ROWS // 3
    ]
