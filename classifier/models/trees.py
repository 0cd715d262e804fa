"""Boosted regression trees on the cheap features, run in plain Python from flat lists.

Leaves are constants, so no input, however odd, gets a score beyond the training data's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from classifier.features import NAMES, Features
from classifier.models.base import ModelError, number, numbers

_LEAF = -1
_Node = tuple[int, float, Any, Any]
"""Feature (-1 at a leaf), threshold or a leaf's value, left and right node."""
_MOST_STEPS = 10_000
"""From the roots to the deepest leaves, all trees together: about a millisecond a request."""


@dataclass(frozen=True, slots=True)
class Trees:
    """`start + sum(leaf of each tree)`.

    Nodes of all the trees stand in one list: `feature[i]` (-1 at a leaf), `value[i]` (threshold, or a leaf's value) and the
    index of the right child; the left child is the next node. A value at most the threshold goes left.
    """

    start: float
    roots: tuple[int, ...]
    feature: tuple[int, ...]
    value: tuple[float, ...]
    right: tuple[int, ...]
    _roots: tuple[_Node, ...]
    """The same trees as nested tuples, which Python walks faster."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Trees:
        """Rebuild from an artefact. Raises `ModelError`: a walk through the nodes must always end."""
        value = numbers(parameters, "value")
        feature = _indices(parameters, "feature", len(value), _LEAF, len(NAMES) - 1)
        right = _indices(parameters, "right", len(value), 0, len(value) - 1)
        roots = _indices(parameters, "roots", None, 0, len(value) - 1)
        for node, name in enumerate(feature):
            # Children stand after their parent, so there is no cycle.
            if name != _LEAF and (right[node] <= node + 1 or node + 1 >= len(value)):
                raise ModelError(f"node {node}: its children must stand after it")
        steps = _longest(roots, feature, right)
        if steps > _MOST_STEPS:
            raise ModelError(f"its trees take up to {steps} steps a request; at most {_MOST_STEPS} are allowed")
        nodes: list[_Node | None] = [None] * len(value)
        for node in range(len(value) - 1, -1, -1):
            name = feature[node]
            inner = name != _LEAF
            nodes[node] = (name, value[node], nodes[node + 1] if inner else None, nodes[right[node]] if inner else None)
        walked = tuple(found for root in roots if (found := nodes[root]) is not None)
        return cls(number(parameters, "start"), roots, feature, value, right, walked)

    def score(self, features: Features) -> float:
        """Return the sum of the leaves that the features reach."""
        vector, total = features.vector, self.start
        for name, value, left, right in self._roots:
            while name >= 0:
                name, value, left, right = left if vector[name] <= value else right
            total += value
        return total

    def contributions(self, features: Features) -> dict[str, float]:
        """Return each feature's part along the paths taken: the change of the subtree's mean at each split (Saabas 2014)."""
        means = self._means()
        parts: dict[str, float] = {}
        for node in self.roots:
            while (index := self.feature[node]) >= 0:
                child = node + 1 if features.vector[index] <= self.value[node] else self.right[node]
                parts[NAMES[index]] = parts.get(NAMES[index], 0.0) + means[child] - means[node]
                node = child
        return parts

    def _means(self) -> list[float]:
        """The mean of each node's two children (unweighted), from the leaves up."""
        means = [0.0] * len(self.value)
        for node in range(len(self.value) - 1, -1, -1):
            if self.feature[node] < 0:
                means[node] = self.value[node]
            else:
                means[node] = (means[node + 1] + means[self.right[node]]) / 2
        return means


def _longest(roots: tuple[int, ...], feature: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Return the most nodes that one request can pass, by the depth of each node's subtree from the leaves up."""
    depth = [1] * len(feature)
    for node in range(len(feature) - 1, -1, -1):
        if feature[node] != _LEAF:
            depth[node] = 1 + max(depth[node + 1], depth[right[node]])
    return sum(depth[root] for root in roots)


def _indices(parameters: Mapping[str, object], name: str, size: int | None, low: int, high: int) -> tuple[int, ...]:
    values = numbers(parameters, name, size)
    for value in values:
        if value != int(value) or not low <= value <= high:
            raise ModelError(f"parameter {name!r}: expected whole numbers from {low} to {high}, found {value}")
    return tuple(int(value) for value in values)
