"""Paired tests of quality lost: is the mean loss under the margin, above it, or can't one tell? Needs the extra `train`.

Right-or-wrong answers are tested exactly. The mean loss is `P(lost) - P(won)`; each share gets a Clopper-Pearson bound
(Biometrika 26, 1934) at half the level, and their difference holds by Bonferroni's inequality: conservative, at any sample
size. Whether losses and wins differ at all is told by McNemar's exact conditional test (Psychometrika 12, 1947): the binomial
probability of so uneven a split of the discordant pairs. Other qualities are tested by Student's t on the paired differences.

Many segments are tested at once, so verdicts follow Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binomtest, t  # type: ignore[import-untyped]

from classifier.evaluate import Array

LEVEL = 0.05
LEAST = 20
"""Fewer prompts decide nothing."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Paired qualities of one segment at one precision."""

    prompts: int
    full_quality: float
    mean_loss: float
    low: float
    high: float
    """95% interval of the mean loss."""
    lost: int | None
    won: int | None
    """Pairs that only full precision, or only the variant, got right; None where quality isn't right-or-wrong."""
    mcnemar: float | None
    """Exact two-sided p-value that losses and wins differ; None as above."""
    p_non_inferior: float
    """One-sided p-value against a mean loss of the margin or more."""
    p_inferior: float
    """One-sided p-value against a mean loss of the margin or less."""


def paired(full: Array, own: Array, margin: float) -> Paired:
    """Return the paired figures; `margin` is the share of full precision's mean quality that may be lost."""
    loss = full - own
    size = len(loss)
    if not size:
        return Paired(0, 0.0, 0.0, -1.0, 1.0, None, None, None, 1.0, 1.0)
    allowed = margin * float(full.mean())
    binary = bool(np.isin(full, (0.0, 1.0)).all() and np.isin(own, (0.0, 1.0)).all())
    bounds: Callable[[float], tuple[float, float]]
    lost = won = p_differ = None
    if binary:
        lost, won = int((loss > 0).sum()), int((loss < 0).sum())
        p_differ = mcnemar(lost, won)
        a, b = lost, won
        bounds = lambda level: exact_bounds(a, b, size, level)  # noqa: E731
    else:
        mean, error = float(loss.mean()), float(loss.std(ddof=1)) / size**0.5 if size > 1 else float("inf")
        # A spread of 0 would make a few equal prompts a proof.
        error = max(error, 1e-9)

        def bounds(level: float) -> tuple[float, float]:
            reach = float(t.ppf(1 - level, max(size - 1, 1))) * error
            return max(mean - reach, -1.0), min(mean + reach, 1.0)

    low, high = bounds(LEVEL / 2)
    return Paired(
        prompts=size,
        full_quality=float(full.mean()),
        mean_loss=float(loss.mean()),
        low=low,
        high=high,
        lost=lost,
        won=won,
        mcnemar=p_differ,
        p_non_inferior=_least_level(lambda level: bounds(level)[1] < allowed),
        p_inferior=_least_level(lambda level: bounds(level)[0] > allowed),
    )


def mcnemar(lost: int, won: int) -> float:
    """Return the exact two-sided p-value that losses and wins are equally likely."""
    return float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0


def exact_bounds(lost: int, won: int, size: int, level: float) -> tuple[float, float]:
    """Return the lower and the upper bound, each at confidence `1 - level`, of `P(lost) - P(won)`."""
    part = level / 2
    return (
        _lower(lost, size, part) - _upper(won, size, part),
        _upper(lost, size, part) - _lower(won, size, part),
    )


def _lower(count: int, size: int, level: float) -> float:
    return float(beta.ppf(level, count, size - count + 1)) if count else 0.0


def _upper(count: int, size: int, level: float) -> float:
    return float(beta.ppf(1 - level, count + 1, size - count)) if count < size else 1.0


def _least_level(proves: Callable[[float], bool]) -> float:
    """The p-value: the least level at which the bound proves it, by bisection on its logarithm; 1 where none under 0.5 does."""
    if not proves(0.5):
        return 1.0
    low, high = -30.0, float(np.log(0.5))
    for _ in range(40):
        middle = (low + high) / 2
        if proves(float(np.exp(middle))):
            high = middle
        else:
            low = middle
    return float(np.exp(high))


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return which hypotheses fall when the chance of one false rejection shall stay at most `level`."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def verdicts(table: Mapping[str, Paired]) -> dict[str, str]:
    """Return `non_inferior`, `inferior` or `undecided` by name; both directions of every test count in Holm's family."""
    names = [name for name, row in table.items() if row.prompts >= LEAST]
    p_values = [table[name].p_non_inferior for name in names] + [table[name].p_inferior for name in names]
    fallen = holm(p_values)
    found = dict.fromkeys(table, "undecided")
    for at, name in enumerate(names):
        if fallen[at]:
            found[name] = "non_inferior"
        elif fallen[at + len(names)]:
            found[name] = "inferior"
    return found
