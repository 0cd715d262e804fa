"""Is a text's form unlike what people ask, or is it a greeting: looked up in its first and last characters, in microseconds.

Noise is easy to append to a request, and says nothing of how hard the request is. What is found here never lowers a risk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RUN = 8
_TAIL_WORDS = 9
_LEAST_WORDS = 3
VARIETY_CHARS = 120
"""Characters at either end in which distinct ones are counted."""
_VARIETY = 9
# Rulers, leaders, blanks and zeros repeat in ordinary text; other signs don't.
_RULERS = frozenset(" \t\n-=_.*#~`+|/\\0<>")

# Words that speak of the choice of a model, not of a task: two of them in one request.
_ROUTER_WORDS = frozenset(
    b"router routing routed precision int4 int8 fp8 fp16 quantized quantised quantization quantisation classifier cheapest "
    b"smallest difficulty trivial easiest thresholds".split()
)
_SMALL_TALK = frozenset(
    b"hi hello hey hiya yo greetings howdy thanks thank you thx ty bye goodbye good morning afternoon evening night day there "
    b"ok okay cool great nice well please welcome everyone all how are is it going doing today to meet see my friend dear sir "
    b"so much very a lot assistant".split()
)
_GREETS = frozenset(
    b"hi hello hey hiya yo greetings howdy thanks thank thx ty bye goodbye good ok okay cool great nice".split()
)
_SMALL_TALK_CHARS = 60
_HAN_SMALL_TALK = re.compile(
    r"(?:你好|您好|大家好|早上好|早安|下午好|晚上好|晚安|谢谢|多谢|感谢|再见|拜拜|嗨|哈喽|在吗|好的|你们|您|你|呀|啊|吗|了|[\s，。！!,.~？?])+"
)


def ends_of(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the distinct characters of the first and of the last `VARIETY_CHARS` characters."""
    if len(text) <= VARIETY_CHARS:
        return (whole := frozenset(text)), whole
    return frozenset(text[:VARIETY_CHARS]), frozenset(text[-VARIETY_CHARS:])


def odd_form(
    text: str, sequence: Sequence[bytes], words: frozenset[bytes], ends: tuple[frozenset[str], frozenset[str]]
) -> str:
    """Return what is unlikely about the form of `text`, a stable short name, or an empty string.

    `sequence` are its words in order, `words` the distinct ones, `ends` what `ends_of` says. Looked at: runs of one character, few different characters,
    one word over and over, blobs without a space (base64), and talk about the choice of a model.
    """
    size = len(text)
    if size >= _RUN and (
        (text[-_RUN:] == text[-1] * _RUN and text[-1] not in _RULERS)
        or (text[:_RUN] == text[0] * _RUN and text[0] not in _RULERS)
    ):
        return "run"
    if size >= VARIETY_CHARS and (len(ends[1]) < _VARIETY or len(ends[0]) < _VARIETY):
        return "variety"
    if len(sequence) >= _TAIL_WORDS and (
        len(set(sequence[-_TAIL_WORDS:])) < _LEAST_WORDS or len(set(sequence[:_TAIL_WORDS])) < _LEAST_WORDS
    ):
        return "repetition"
    # Han and the like are written without spaces.
    if size >= VARIETY_CHARS and (
        (" " not in ends[1] and _blob(text[-VARIETY_CHARS:])) or (" " not in ends[0] and _blob(text[:VARIETY_CHARS]))
    ):
        return "blob"
    if not words.isdisjoint(_ROUTER_WORDS) and len(words & _ROUTER_WORDS) >= 2:
        return "router"
    return ""


def is_small_talk(text: str, words: frozenset[bytes]) -> bool:
    """Return whether a text is a greeting, thanks or a farewell and nothing else."""
    if len(text) > _SMALL_TALK_CHARS:
        return False
    if text.isascii():
        return not words.isdisjoint(_GREETS) and words <= _SMALL_TALK
    return _HAN_SMALL_TALK.fullmatch(text) is not None and any(char.isalpha() for char in text)


def _blob(piece: str) -> bool:
    return "\n" not in piece and piece.isascii()
