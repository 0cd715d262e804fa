"""The protocol of a model, and readers of its parameters that say what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Protocol

from classifier.features import NAMES, Features


class ModelError(ValueError):
    """Parameters don't fit the model."""


class Model(Protocol):
    """Features to a number. Holds no state that `score` changes, so any number of threads may share it."""

    def score(self, features: Features) -> float:
        """Return the request's difficulty; only its order matters, the calibration gives it a meaning."""
        ...

    def contributions(self, features: Features) -> dict[str, float]:
        """Return how far each feature moved the score from that of an average training prompt."""
        ...


def number(parameters: Mapping[str, object], name: str) -> float:
    """Return a finite number. Raises `ModelError`."""
    value = parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise ModelError(f"parameter {name!r}: expected a finite number, found {value!r:.80}")
    return float(value)


def numbers(parameters: Mapping[str, object], name: str, size: int | None = None) -> tuple[float, ...]:
    """Return a list of `size` finite numbers (None: any size). Raises `ModelError`."""
    value = parameters.get(name)
    if not isinstance(value, list):
        raise ModelError(f"parameter {name!r}: expected a list of numbers, found {value!r:.80}")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, (int, float)) or not isfinite(item):
            raise ModelError(f"parameter {name!r}: expected finite numbers, found {item!r:.80}")
    if size is not None and len(value) != size:
        raise ModelError(f"parameter {name!r}: expected {size} numbers, found {len(value)}")
    return tuple(float(item) for item in value)


def per_feature(parameters: Mapping[str, object], name: str) -> tuple[float, ...]:
    """Return one finite number per feature. Raises `ModelError`."""
    return numbers(parameters, name, len(NAMES))
