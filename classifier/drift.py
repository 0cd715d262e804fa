"""Has traffic left what the artefact was made for? Distributions against its reference, and risks against feedback.

The reference is the general prompts on which the thresholds were chosen: when traffic differs, the shares that they promise no
longer hold. Measured by the population stability index, `PSI = sum((p - q) * ln(p / q))` over bins, where `p` is the share of
traffic and `q` that of the reference; by convention below 0.1 is stable and above 0.25 is a shift.

Counters here are plain integers that add up: workers keep their own, whoever reads adds them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from classifier.features import NAMES, Features
from classifier.models.base import ModelError, numbers
from classifier.risks import Risks

STABLE = 0.1
SHIFTED = 0.25
LEAST_REQUESTS = 500
"""Fewer requests say nothing: bins of a tenth each are too noisy."""
RISK = "risk_int4"
"""The name of the risk's own distribution beside the features'."""
_FEEDBACK_BINS = 10


@dataclass(frozen=True, slots=True)
class Reference:
    """Bins and their shares in the reference, by name (`features.NAMES` and `RISK`)."""

    edges: Mapping[str, tuple[float, ...]]
    shares: Mapping[str, tuple[float, ...]]

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Reference:
        """Rebuild from an artefact's `reference`. Raises `ModelError`."""
        edges, shares = {}, {}
        for name in (*NAMES, RISK):
            entry = content.get(name)
            if not isinstance(entry, dict):
                raise ModelError(f"reference: nothing about {name!r}")
            edges[name] = numbers(entry, "edges")
            shares[name] = numbers(entry, "shares", len(edges[name]) + 1)
            if list(edges[name]) != sorted(set(edges[name])):
                raise ModelError(f"reference {name!r}: edges must grow")
        return cls(edges, shares)


def reference(vectors: Sequence[Sequence[float]], risks: Sequence[float], bins: int = 10) -> dict[str, object]:
    """Return an artefact's `reference`: edges at the tenths of each distribution, equal ones merged, and the bins' shares."""
    found: dict[str, object] = {}
    columns = {name: [vector[index] for vector in vectors] for index, name in enumerate(NAMES)}
    for name, values in {**columns, RISK: list(risks)}.items():
        ordered = sorted(values)
        edges = sorted({float(f"{ordered[len(ordered) * i // bins]:.7g}") for i in range(1, bins)})
        counts = [0] * (len(edges) + 1)
        for value in values:
            counts[bisect_left(edges, value)] += 1
        found[name] = {"edges": edges, "shares": [round(count / len(values), 6) for count in counts]}
    return found


class Drift:
    """Counts of one window of traffic. Made for one thread; a few microseconds a request."""

    __slots__ = ("_bins", "counts", "requests")

    def __init__(self, against: Reference) -> None:
        self._bins = tuple((name, against.edges[name]) for name in NAMES)
        self._bins += ((RISK, against.edges[RISK]),)
        self.counts: dict[str, list[int]] = {name: [0] * (len(edges) + 1) for name, edges in self._bins}
        self.requests = 0

    def add(self, features: Features, risks: Risks) -> None:
        """Count one request."""
        self.requests += 1
        for (name, edges), value in zip(self._bins, (*features.vector, risks.by_precision["int4"]), strict=True):
            self.counts[name][bisect_left(edges, value)] += 1

    def merge(self, other: Drift) -> None:
        """Add another worker's counts of the same reference."""
        self.requests += other.requests
        for name, counts in other.counts.items():
            mine = self.counts[name]
            for index, count in enumerate(counts):
                mine[index] += count


def psi(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Return the stability index; half a request is added to each bin, so that an empty one doesn't make it infinite."""
    size = len(counts)
    total = sum(counts) + 0.5 * size
    found = 0.0
    for count, share in zip(counts, shares, strict=True):
        p = (count + 0.5) / total
        q = max(share, 1e-4)
        found += (p - q) * log(p / q)
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a window says."""

    requests: int
    index: Mapping[str, float]
    """PSI by name."""
    shifted: tuple[str, ...]
    """Names above `SHIFTED`, the largest first; empty with fewer than `LEAST_REQUESTS` requests."""
    enough: bool

    @property
    def alert(self) -> bool:
        """Whether the risks themselves have shifted: then thresholds no longer mean what they were chosen for."""
        return RISK in self.shifted


def verdict(window: Drift, against: Reference) -> Verdict:
    """Compare a window with the reference."""
    index = {name: psi(counts, against.shares[name]) for name, counts in window.counts.items()}
    enough = window.requests >= LEAST_REQUESTS
    shifted = sorted((name for name, value in index.items() if value > SHIFTED), key=lambda name: -index[name])
    return Verdict(window.requests, index, tuple(shifted) if enough else (), enough)


class Feedback:
    """Risks against what feedback said: was the answer at this precision worse than full precision's?"""

    __slots__ = ("counts", "highest", "risk_sums", "worse")

    def __init__(self, highest: float) -> None:
        """`highest`: the risk at which the last of the ten equal bins ends; larger ones fall into it too."""
        if not 0 < highest <= 1:
            raise ValueError(f"highest: expected a risk above 0 and at most 1, found {highest}")
        self.highest = highest
        self.counts = [0] * _FEEDBACK_BINS
        self.worse = [0] * _FEEDBACK_BINS
        self.risk_sums = [0.0] * _FEEDBACK_BINS

    def add(self, risk: float, worse: bool) -> None:
        """Count one answer with feedback."""
        index = min(max(int(risk / self.highest * _FEEDBACK_BINS), 0), _FEEDBACK_BINS - 1)
        self.counts[index] += 1
        self.worse[index] += worse
        self.risk_sums[index] += risk

    def error(self) -> float | None:
        """Return the expected calibration error, in [0, 1]; None without feedback."""
        total = sum(self.counts)
        if not total:
            return None
        return sum(abs(risk - worse) for risk, worse in zip(self.risk_sums, self.worse, strict=True)) / total

    def bias(self) -> float | None:
        """Return the mean risk minus the share of worse answers: below 0, risks are too low. None without feedback."""
        total = sum(self.counts)
        return (sum(self.risk_sums) - sum(self.worse)) / total if total else None
