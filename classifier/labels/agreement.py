"""Whether the variant's greedy answer is full precision's."""

from __future__ import annotations

import unicodedata

from classifier.labels.base import Comparison, Loss
from classifier.labels.checks import choice, numbers


def normalised(text: str) -> str:
    """Return what two answers share that differ in form only: width, case and spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def agrees(pair: Comparison) -> bool:
    """Whether both answers say the same: the last number or the choice where the task asks for one, else the same text."""
    if pair.text is None:
        return False
    if normalised(pair.full_text) == normalised(pair.text):
        return True
    if pair.task == "number":
        ours, theirs = numbers(pair.full_text), numbers(pair.text)
        return bool(ours) and bool(theirs) and ours[-1] == theirs[-1]
    if pair.task == "choice":
        return choice(pair.full_text) is not None and choice(pair.full_text) == choice(pair.text)
    return False


def first_difference(pair: Comparison) -> int | None:
    """Return the position of the first token that the variant would not have taken; None: none, or not scored."""
    return next((at for at, rank in enumerate(pair.ranks or ()) if rank != 1), None)


def agreement(pair: Comparison) -> Loss | None:
    """Return the loss of agreement: quality 1 or 0; the target grows the earlier the answers part."""
    same = agrees(pair)
    at = first_difference(pair)
    size = len(pair.ranks or ())
    target = 0.0 if same else 1.0 if at is None or not size else 1.0 - at / size / 2
    return Loss(1.0, float(same), not same, target)
