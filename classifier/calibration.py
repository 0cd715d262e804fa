"""From a score to probabilities: Platt scaling per precision, with an interval.

`P(worse at p | score) = sigmoid(intercept_p + slope * z + shift_p)`, the shift only where the answer must fit a schema, where `z` is the standardised score, clipped
(Platt 1999). Precisions share the slope where there are too few losses to tell slopes apart; with `slopes` each has its own,
with `bends` a line of several pieces (`classifier.bend`), and a lower precision never has less risk than a higher one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from math import exp, sqrt
from operator import add
from typing import Any

from classifier.features import NAMES, Features
from classifier.models.base import ModelError, number, numbers, per_feature
from classifier.risks import PRECISIONS

_Z90 = 1.645
_MOST_POINTS = 33
_MOST_LOG_ODDS = 100.0
_HAN = NAMES.index("han_share")
_OTHER = NAMES.index("other_script_share")
_FORM = tuple(
    NAMES.index(name)
    for name in (
        "digit_share",
        "operator_share",
        "symbol_share",
        "upper_share",
        "newline_share",
        "log_lines",
        "word_length",
        "log_sentences",
        "comma_share",
        "distinct_words",
    )
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What turns a model's score into risks."""

    mean: float
    """Mean of the score on the prompts it was calibrated on."""
    scale: float
    """Its standard deviation."""
    clip: float
    """Largest |z|: no request, however odd, gets a more extreme risk."""
    slope: float
    intercepts: tuple[float, ...]
    """One per name in `PRECISIONS`, never falling."""
    structured: tuple[float, ...]
    """Added for requests whose answer must fit a schema or may call tools (log-odds); one per name, never falling."""
    covariance: tuple[float, float, float]
    """Of intercept and slope at the lowest precision: var(intercept), cov, var(slope)."""
    han_shift: float
    """Added to the score of a text wholly in Chinese, a mixed one in proportion: there are no outcomes in Chinese, so its
    general prompts are taken to be as hard as English ones."""
    floor: float
    """Least z of a text of unlikely form (`suspicious`)."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Range of each feature in the training data: outside it the interval widens."""
    slopes: tuple[float, ...] = ()
    """One per name in `PRECISIONS`; none: all have `slope`."""
    points: tuple[float, ...] = ()
    """The `z`, rising, between which `bends` are straight."""
    bends: tuple[tuple[float, ...], ...] = ()
    """Log-odds added at each of `points`, never falling; one line per name in `PRECISIONS`. They stand instead of slopes."""

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Calibration:
        """Rebuild from an artefact. Raises `ModelError`."""
        intercepts = numbers(content, "intercepts", len(PRECISIONS))
        covariance = numbers(content, "covariance", 3)
        calibration = cls(
            mean=number(content, "mean"),
            scale=number(content, "scale"),
            clip=number(content, "clip"),
            slope=number(content, "slope"),
            intercepts=intercepts,
            structured=numbers(content, "structured", len(PRECISIONS)),
            covariance=(covariance[0], covariance[1], covariance[2]),
            han_shift=number(content, "han_shift"),
            floor=number(content, "floor"),
            low=per_feature(content, "low"),
            high=per_feature(content, "high"),
            slopes=numbers(content, "slopes", len(PRECISIONS)) if content.get("slopes") else (),
            **_bends(content),
        )
        if calibration.scale <= 0 or calibration.clip <= 0:
            raise ModelError("calibration: scale and clip must be above 0")
        if abs(calibration.floor) > calibration.clip:
            raise ModelError("calibration: floor must lie within clip")
        if calibration.slope < 0 or any(slope < 0 for slope in calibration.slopes):
            raise ModelError("calibration: slope must not be below 0; a higher score means a higher risk")
        moves = (calibration.slope * calibration.clip, *(slope * calibration.clip for slope in calibration.slopes))
        # Beyond such log-odds a risk is 0 or 1 in every digit, and `exp` overflows.
        if any(abs(value) > _MOST_LOG_ODDS for value in (*intercepts, *calibration.structured, *moves)):
            raise ModelError(
                f"calibration: intercepts, structured and slopes times clip must lie within {_MOST_LOG_ODDS:.0f}"
            )
        for name, values in (("intercepts", intercepts), ("structured", calibration.structured)):
            if list(values) != sorted(values):
                raise ModelError(f"calibration: {name} must not fall along {', '.join(PRECISIONS)}")
        return calibration

    def standard(self, score: float, features: Features) -> float:
        """Return the standardised, clipped score: the least for a greeting, at least `floor` for a text of unlikely form."""
        if features.small_talk:
            return -self.clip
        score += self.han_shift * features.vector[_HAN]
        z = (score - self.mean) / self.scale
        if not -self.clip <= z <= self.clip:
            # A score that is no number (weights whose products cancel beyond the largest one) is as hard as any.
            z = -self.clip if z < -self.clip else self.clip
        return self.floor if z < self.floor and self.suspicious(features) else z

    def suspicious(self, features: Features) -> bool:
        """Whether the text's form is odd (`form.odd_form`) or lies outside the training data (shares of signs, repetition).

        Such text is easy to append to a request and moves scores at will, so it must not buy a lower risk.
        """
        if features.odd:
            return True
        vector, low, high = features.vector, self.low, self.high
        for index in _FORM:  # noqa: SIM110 (a generator would take twice as long)
            if not low[index] <= vector[index] <= high[index]:
                return True
        return False

    def probabilities(self, z: float, features: Features) -> dict[str, float]:
        """Return the risk of each precision at a standardised score."""
        starts = self.intercepts
        if features.conversation.structured:
            starts = tuple(map(add, starts, self.structured))
        if self.bends:
            moves = self._bent(z)
        elif self.slopes:
            moves = [slope * z for slope in self.slopes]
        else:
            moved = self.slope * z
            return {name: 1.0 / (1.0 + exp(-(start + moved))) for name, start in zip(PRECISIONS, starts, strict=True)}
        found, least = {}, 0.0
        for name, start, moved in zip(PRECISIONS, starts, moves, strict=True):
            found[name] = least = max(least, 1.0 / (1.0 + exp(-(start + moved))))
        return found

    def _bent(self, z: float) -> list[float]:
        """Each precision's line at `z`, straight on beyond neither end."""
        points = self.points
        place = min(max(bisect_right(points, z), 1), len(points) - 1)
        left = points[place - 1]
        part = min(max((z - left) / (points[place] - left), 0.0), 1.0)
        return [line[place - 1] + part * (line[place] - line[place - 1]) for line in self.bends]

    def uncertainty(self, z: float, risk: float, features: Features) -> float:
        """Half the width of the 90% interval of `risk` (delta method), widened by `novelty`; in [0, 1]."""
        a, b, c = self.covariance
        deviation = sqrt(max(a + 2 * z * b + z * z * c, 0.0))
        width = _Z90 * deviation * risk * (1 - risk) * (1.0 + self.novelty(features))
        return width if width < 1.0 else 1.0

    def novelty(self, features: Features) -> float:
        """How far a request is from the training data, from 0; a stated rule, not an estimate.

        Twice the share of features outside their range, and half for each of: images, a language without outcomes, a text
        that was only sampled or not readable.
        """
        vector = features.vector
        outside = 0
        for value, low, high in zip(vector, self.low, self.high, strict=True):
            if value < low or value > high:
                outside += 1
        conversation = features.conversation
        foreign = vector[_HAN] + vector[_OTHER] > 0.2
        return 2.0 * outside / len(vector) + 0.5 * ((conversation.images > 0) + foreign + conversation.sampled)


def _bends(content: Mapping[str, object]) -> dict[str, Any]:
    """The points and lines of a calibration that has them. Raises `ModelError`."""
    listed = content.get("bends")
    if not listed:
        return {}
    points = numbers(content, "points")
    if not 2 <= len(points) <= _MOST_POINTS or any(b <= a for a, b in pairwise(points)):
        raise ModelError(f"calibration: points must be 2 to {_MOST_POINTS} rising numbers")
    if not isinstance(listed, list) or len(listed) != len(PRECISIONS):
        raise ModelError(f"calibration: bends must be {len(PRECISIONS)} lists")
    lines = tuple(numbers({"bends": line}, "bends", len(points)) for line in listed)
    if any(b < a for line in lines for a, b in pairwise(line)) or any(abs(v) > _MOST_LOG_ODDS for v in chain(*lines)):
        raise ModelError(f"calibration: bends must not fall, and lie within {_MOST_LOG_ODDS:.0f}")
    return {"points": points, "bends": lines}
