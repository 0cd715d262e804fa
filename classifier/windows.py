"""The beginnings of a conversation, each seen as if the whole were like it: what somebody appends cannot dilute them."""

from __future__ import annotations

from classifier.features import Features, measure

PIECES = ((0.6, 480), (0.3, 240))
"""Share of the text and most characters of each piece: short of a suffix, whatever its length, one of them is mostly the request."""
_LEAST = 24


def windows(features: Features) -> list[Features]:
    """Return the features of the pieces; a text of a few words has none."""
    conversation = features.conversation
    text = conversation.text.strip()
    sizes = [min(int(len(text) * share), most) for share, most in PIECES]
    return [measure(text[:size], conversation) for size in sizes if size >= _LEAST]
