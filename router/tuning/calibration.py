"""How the classifier's risks stand against what pairs of answers showed: by precision, for the report and every worker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from classifier.drift import Feedback
from router.tuning.evidence import Evidence
from router.tuning.jobs import Jobs
from router.tuning.records import Record
from router.tuning.replay import Facts

LEAST_PAIRS = 30
"""With fewer pairs nothing is said of a precision."""


class Calibration(NamedTuple):
    """One precision's risks."""

    precision: str
    pairs: int
    error: float
    """Expected calibration error, in [0, 1]."""
    bias: float
    """Mean risk less the share of worse answers; below 0, risks are too low."""


def calibrations(records: Sequence[Record], evidence: Evidence, facts: Facts) -> list[Calibration]:
    """Return the precisions of which enough pairs were compared; an answer counts as worse when its pair said so.

    Feedback alone does not count: of one answer it tells a level, not whether full precision's would have been better.
    """
    precision_of = dict(zip(facts.variants, facts.precisions, strict=True))
    pairs: dict[str, list[tuple[float, bool]]] = {precision: [] for precision in facts.lower}
    for piece in evidence.pieces:
        precision = precision_of.get(piece.variant, "")
        if piece.kind != "paired" or precision not in pairs:
            continue
        record = records[piece.record]
        option = next((o for o in record.options if o.variant == piece.variant), None)
        risk = option.risk if option is not None else record.risks.get(precision)
        if risk is not None:
            pairs[precision].append((risk, piece.difference < 0.0))
    return [_of(precision, some) for precision, some in pairs.items() if len(some) >= LEAST_PAIRS]


def _of(precision: str, pairs: Sequence[tuple[float, bool]]) -> Calibration:
    feedback = Feedback(max(1e-6, max(risk for risk, _ in pairs)))
    for risk, worse in pairs:
        feedback.add(risk, worse)
    return Calibration(precision, len(pairs), feedback.error() or 0.0, feedback.bias() or 0.0)


async def show(jobs: Jobs, groups: Collection[str], tell: Callable[[str, str, float, float], None]) -> None:
    """Tell `tell` (group, precision, error, bias) what each group's newest job found. Raises RedisError, OSError."""
    for group in groups:
        found: list[dict[str, Any]] = (await jobs.state(group)).get("calibration") or []
        for row in found:
            tell(group, str(row["precision"]), float(row["error"]), float(row["bias"]))


__all__ = ["Calibration", "calibrations", "show"]
