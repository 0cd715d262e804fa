"""From labels to evidence: how much better or worse than full precision each labelled answer was, and what it weighs.

Paired shadow answers tell a difference directly. Feedback tells a level: it is compared with feedback about full
precision on requests of like risk, so that what all voters share (only the unhappy vote) cancels. One API key's
feedback weighs at most `max_weight_per_key` of all evidence, and a key that contradicts everybody else is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple

from router.tuning.records import Label, Record

Kind = Literal["paired", "explicit", "implicit"]

IMPLICIT_WEIGHT = 0.2
"""An early stop or a regeneration has many causes; quality is one."""
_BINS = 5
_SHRINK = 10.0
"""Labels of the whole that each bin's mean of feedback on full precision is mixed with."""
_KEY_LABELS = 10
_KEY_Z = 4.0
_KEY_GAP = 0.15
"""A key is left out when, with so many labels, its mean is so many standard errors and this far from the rest."""


class Piece(NamedTuple):
    """What one labelled answer says of its variant."""

    record: int
    """Index into the records."""
    variant: str
    difference: float
    """Quality against full precision's answer to the same request, in [-1, 1]."""
    weight: float
    """Against a paired label's 1."""
    kind: Kind
    key: str
    propensity: float = 1.0
    """Probability with which the request was drawn for its label."""
    served: bool = True
    """Whether the variant's answer was the client's; else it was only asked in the shadow of full precision's."""


class Evidence(NamedTuple):
    """All pieces, and what was seen on the way."""

    pieces: tuple[Piece, ...]
    reference_level: float
    """Mean quality of full precision, in [0, 1]."""
    left_out: Mapping[str, str]
    """Keys whose feedback counts nothing, with the reason."""
    counts: Mapping[str, int]
    """Labels read, by kind."""
    key_share: float
    """Largest share of the evidence that one key gives."""


def kind_of(label: Label) -> Kind:
    """Return what a label counts as."""
    if label.source.startswith("shadow:") and label.reference is not None:
        return "paired"
    return "implicit" if label.source.startswith("implicit:") else "explicit"


def gather(records: Sequence[Record], reference: frozenset[str], max_weight_per_key: float) -> Evidence:
    """Return the evidence in `records`; `reference` names the full-precision variants."""
    levels: list[float] = []
    paired: list[Piece] = []
    votes: list[tuple[int, str, float, Kind, str]] = []
    counts = {"paired": 0, "explicit": 0, "implicit": 0}
    for i, record in enumerate(records):
        for label in record.labels:
            kind = kind_of(label)
            counts[kind] += 1
            if kind == "paired" and label.reference is not None:
                levels.append(label.reference)
                if record.variant not in reference:
                    paired.append(_paired(i, record.variant, label, label.reference, served=True))
            else:
                votes.append((i, record.variant, label.value, kind, label.key))
        for label in record.others:
            if label.reference is not None and kind_of(label) == "paired" and label.variant not in reference:
                counts["paired"] += 1
                levels.append(label.reference)
                paired.append(_paired(i, label.variant, label, label.reference, served=False))
    left_out = _outliers(votes, [p for p in paired if p.served], reference, fmean(levels) if levels else None)
    votes = [v for v in votes if v[4] not in left_out or v[3] == "implicit"]
    of_reference = [v for v in votes if v[1] in reference and v[3] == "explicit"]
    level = fmean(levels) if levels else (fmean(v[2] for v in of_reference) if of_reference else 1.0)
    pieces = _cap([*paired, *_compared(records, votes, reference, _weight(paired, votes))], max_weight_per_key)
    return Evidence(tuple(pieces), level, left_out, counts, _largest(pieces))


def _paired(record: int, variant: str, label: Label, reference: float, *, served: bool) -> Piece:
    difference = min(1.0, max(-1.0, label.value - reference))
    return Piece(record, variant, difference, 1.0, "paired", "", label.propensity, served)


def _weight(paired: Sequence[Piece], votes: Sequence[tuple[int, str, float, Kind, str]]) -> float:
    """Return what one explicit label weighs: inverse variance against a paired one, at most 1."""
    explicit = [v[2] for v in votes if v[3] == "explicit"]
    if len(paired) < 10 or len(explicit) < 10:
        return 1.0
    return min(1.0, _variance([p.difference for p in paired]) / max(1e-4, _variance(explicit)))


def _compared(
    records: Sequence[Record],
    votes: Sequence[tuple[int, str, float, Kind, str]],
    reference: frozenset[str],
    explicit_weight: float,
) -> list[Piece]:
    """Return feedback as differences from feedback of its kind on full precision, at like risk."""
    out: list[Piece] = []
    for kind in ("explicit", "implicit"):
        of_kind = [v for v in votes if v[3] == kind]
        base = [(_hardness(records[v[0]]), v[2]) for v in of_kind if v[1] in reference]
        if not base:
            # Nothing to compare with: a level alone says nothing about precision.
            continue
        edges = quantiles([h for h, _ in base], _BINS)
        mean = fmean(y for _, y in base)
        sums, sizes = [mean * _SHRINK] * _BINS, [_SHRINK] * _BINS
        for hardness, value in base:
            at = bin_of(hardness, edges)
            sums[at] += value
            sizes[at] += 1.0
        weight = explicit_weight * (1.0 if kind == "explicit" else IMPLICIT_WEIGHT)
        for i, variant, value, _, key in of_kind:
            if variant in reference:
                continue
            at = bin_of(_hardness(records[i]), edges)
            # The baseline's own uncertainty: as many labels as it has, it can lend to as many.
            out.append(
                Piece(
                    i,
                    variant,
                    value - sums[at] / sizes[at],
                    weight,
                    "explicit" if kind == "explicit" else "implicit",
                    key,
                )
            )
    return out


def _hardness(record: Record) -> float:
    return max(record.risks.values(), default=0.0)


def _outliers(
    votes: Sequence[tuple[int, str, float, Kind, str]],
    paired: Sequence[Piece],
    reference: frozenset[str],
    level: float | None,
) -> dict[str, str]:
    """Return the keys that contradict the rest: the median of the keys where there are three, else the paired answers."""
    by_variant: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, variant, value, kind, key in votes:
        if kind == "explicit":
            by_variant[variant][key].append(value)
    drops: dict[str, list[float]] = defaultdict(list)
    for piece in paired:
        drops[piece.variant].append(piece.difference)
    gaps: dict[str, list[float]] = defaultdict(list)
    for variant, keys in by_variant.items():
        if len(keys) >= 3:
            usual: float | None = median(fmean(values) for values in keys.values())
        elif level is not None and (variant in reference or len(drops[variant]) >= _KEY_LABELS):
            usual = level + (fmean(drops[variant]) if drops[variant] else 0.0)
        else:
            usual = None
        if usual is not None:
            for key, values in keys.items():
                gaps[key].extend(v - usual for v in values)
    found = {}
    # A dozen votes that happen to agree are no exact statement: no key varies less than keys do on the whole.
    usual_spread = median(_variance(residuals) for residuals in gaps.values()) if gaps else 0.0
    for key, residuals in gaps.items():
        gap = fmean(residuals)
        error = math.sqrt(max(0.02, usual_spread, _variance(residuals)) / len(residuals))
        if len(residuals) >= _KEY_LABELS and abs(gap) > _KEY_GAP and abs(gap) > _KEY_Z * error:
            found[key] = (
                f"{len(residuals)} labels, {gap:+.2f} from what the others say ({abs(gap) / error:.0f} standard errors)"
            )
    return found


def _cap(pieces: list[Piece], share: float) -> list[Piece]:
    """Scale each key's weights so that none gives more than `share` of all; alone, a key gives nothing."""
    if share >= 1.0:
        return pieces
    totals: dict[str, float] = defaultdict(float)
    judged = 0.0
    for piece in pieces:
        if piece.kind == "paired":
            judged += piece.weight
        else:
            totals[piece.key] += piece.weight
    allowed = dict(totals)
    for _ in range(60):
        whole = judged + sum(allowed.values())
        cut = {k: min(w, share * whole) for k, w in allowed.items()}
        if all(allowed[k] - w < 1e-9 for k, w in cut.items()):
            break
        allowed = cut
    scale = {k: (allowed[k] / totals[k] if totals[k] else 0.0) for k in totals}
    scaled = (p if p.kind == "paired" else p._replace(weight=p.weight * scale[p.key]) for p in pieces)
    return [p for p in scaled if p.weight > 1e-6]


def _largest(pieces: Sequence[Piece]) -> float:
    totals: dict[str, float] = defaultdict(float)
    for piece in pieces:
        if piece.kind != "paired":
            totals[piece.key] += piece.weight
    whole = sum(p.weight for p in pieces)
    return max(totals.values(), default=0.0) / whole if whole else 0.0


def quantiles(values: Sequence[float], bins: int) -> list[float]:
    """Return the `bins - 1` inner edges that divide `values` into bins of like size; equal edges are kept once."""
    ordered = sorted(values)
    if not ordered:
        return []
    edges = (ordered[min(len(ordered) - 1, len(ordered) * k // bins)] for k in range(1, bins))
    return sorted(set(edges))


def bin_of(value: float, edges: Sequence[float]) -> int:
    """Return the bin of `value`: how many edges are at or below it."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = fmean(values)
    return math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
