"""Pieces of a conversation, each seen as if the whole were like it: what somebody adds before or after cannot dilute them."""

from __future__ import annotations

from classifier.features import Features, measure

PIECES = ((0.0, 0.6, 480), (0.0, 0.3, 240), (0.4, 1.0, 480), (0.7, 1.0, 240))
"""Where a piece starts and ends, as shares of the text, and its most characters.

Beginnings and ends: short of what was added on one side, whatever its length, one of them is mostly the request. Beginnings
keep their first characters and ends their last.
"""
_LEAST = 24


def windows(features: Features) -> list[Features]:
    """Return the features of the pieces; a text of a few words has none."""
    conversation = features.conversation
    text = conversation.text.strip()
    size = len(text)
    found = []
    for start, end, most in PIECES:
        length = min(int(size * (end - start)), most)
        if length >= _LEAST:
            found.append(measure(text[:length] if start == 0.0 else text[size - length :], conversation))
    return found
