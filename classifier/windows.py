"""Both ends of a conversation, each seen as if the whole were like it: what somebody adds at the other end cannot dilute them."""

from __future__ import annotations

from collections.abc import Sequence

from classifier.features import Features, measure
from classifier.form import ends_of

LEAST = 40
"""Characters under which an end says too little."""


def windows(features: Features, ends: Sequence[int]) -> list[Features]:
    """Return the features of the first and of the last so many characters, for each number that is less than the text's.

    Their length is fixed, not a share: text appended leaves the beginnings as they were, text put before leaves the ends.
    """
    conversation = features.conversation
    text = conversation.text.strip()
    size = len(text)
    first, last = features.ends or ends_of(text)
    found = []
    for length in ends:
        if size > length:
            found.append(measure(text[:length], conversation, (first, first)))
            found.append(measure(text[-length:], conversation, (last, last)))
    return found
