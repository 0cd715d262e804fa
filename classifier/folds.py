"""Folds that keep rows of one group together; needs the extra `train`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from classifier.evaluate import Array


def group_folds(groups: Sequence[str], folds: int, seed: int) -> Array:
    """Return each row's fold; rows of one group share it, and folds have about the same size."""
    names, index, sizes = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = np.zeros(len(names))
    filled = np.zeros(folds)
    for group in sorted(order, key=lambda g: -sizes[g]):
        fold_of[group] = filled.argmin()
        filled[filled.argmin()] += sizes[group]
    return np.asarray(fold_of[index], dtype=np.float64)
