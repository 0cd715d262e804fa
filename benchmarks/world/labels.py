"""What applications and judges say of the answers: honest, noisy, poisoned, or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from benchmarks.world.truth import Worth
from router.tuning.records import Label

Labeller = Callable[[random.Random, "Answer"], Sequence[Label]]
"""Gives the labels of one answer. `Answer` is what `World` knows of it."""


class Answer:
    """One answered request, as a labeller sees it."""

    __slots__ = ("at", "key", "precision", "variant", "worth")

    def __init__(self, at: float, key: str, variant: str, precision: str, worth: Worth) -> None:
        self.at = at
        self.key = key
        self.variant = variant
        self.precision = precision
        self.worth = worth


def thumbs(share: float = 0.05, noise: float = 0.0, delay_s: float = 0.0) -> Labeller:
    """Return users who judge a `share` of answers, right in 1 - `noise` of the cases, `delay_s` after them."""

    def label(generator: random.Random, answer: Answer) -> Sequence[Label]:
        if generator.random() >= share:
            return ()
        value = answer.worth.got
        if noise and generator.random() < noise:
            value = 1.0 - value
        return (Label("thumbs", value, None, answer.key, answer.at + delay_s),)

    return label


def shadow(share: float = 0.02, judge: str = "match", noise: float = 0.0) -> Labeller:
    """Return shadow pairs: a `share` of answers is compared with full precision's, which costs no time here.

    A judge errs with probability `noise`: it then takes the one answer for as good as the other.
    """

    def label(generator: random.Random, answer: Answer) -> Sequence[Label]:
        if generator.random() >= share:
            return ()
        value, reference = answer.worth.got, answer.worth.full
        if noise and generator.random() < noise:
            value = reference
        return (Label(f"shadow:{judge}", value, reference, "", answer.at),)

    return label


def poisoned(key: str, says: Mapping[str, float], share: float = 1.0) -> Labeller:
    """Return one key that says of each variant's precision what it wants, for a `share` of its own answers."""

    def label(generator: random.Random, answer: Answer) -> Sequence[Label]:
        if answer.key != key or answer.precision not in says or generator.random() >= share:
            return ()
        return (Label("thumbs", says[answer.precision], None, key, answer.at),)

    return label


def several(*labellers: Labeller) -> Labeller:
    """Return all of them together."""

    def label(generator: random.Random, answer: Answer) -> Sequence[Label]:
        return [one for labeller in labellers for one in labeller(generator, answer)]

    return label
