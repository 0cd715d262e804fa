"""Bodies of megabytes: long strings of base64 are taken out before anything else looks at the body, and put back at the end.

Parsing holds the interpreter for as long as it takes, whichever thread does it, and so all other requests of the worker.
What is taken out is only looked at in small pieces, in a thread, between which the others go on. What is left is small.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import string
from collections.abc import Callable
from typing import NamedTuple

LARGE = 512 * 1024
"""Bytes above which a body is worth the thread."""
_LONG = 64 * 1024
_KEPT = 64
"""Bytes of a string's beginning that stay: `data:image/png;base64,` and the like."""
_PIECE = 256 * 1024
_MOST_QUOTES = 200_000
_ALPHABET = (string.ascii_letters + string.digits + "+/=-_").encode()
# A long word in a text is still text, whose length counts: only these fields hold data.
_FIELD = re.compile(
    rb'"(?:url|image_url|audio_url|video_url|data|file_data|file_url|b64_json|image)"[ \t\r\n]*:[ \t\r\n]*$'
)
_QUOTE, _BACKSLASH = b'"', 0x5C


class Light(NamedTuple):
    """A body without its long strings of data."""

    skeleton: bytes
    """The same JSON, with a short word in the place of each."""
    whole: Callable[[bytes], bytes]
    """Puts them back into the skeleton, or into what has become of it."""


async def lighten(raw: bytes) -> Light | None:
    """Return the body without its long strings of data; None where there are none."""
    cuts = await asyncio.to_thread(_cuts, raw)
    if not cuts:
        return None
    word = secrets.token_hex(12)
    marks = [f"{word}.{number}.".encode() for number in range(len(cuts))]
    pieces, at = [], 0
    for (begin, end), mark in zip(cuts, marks, strict=True):
        pieces += [raw[at:begin], mark]
        at = end
    pieces.append(raw[at:])

    def whole(skeleton: bytes) -> bytes:
        view, found, begin = memoryview(raw), list[bytes | memoryview](), 0
        for cut, mark in zip(cuts, marks, strict=True):
            end = skeleton.index(mark, begin)
            found += [skeleton[begin:end], view[cut[0] : cut[1]]]
            begin = end + len(mark)
        found.append(skeleton[begin:])
        return b"".join(found)

    return Light(b"".join(pieces), whole)


def _cuts(raw: bytes) -> list[tuple[int, int]]:
    """Return where data stands in the body's strings; whether it is valid JSON at all, the parser will say."""
    cuts, at, looked = [], 0, 0
    while looked < _MOST_QUOTES:
        start = raw.find(_QUOTE, at)
        end = raw.find(_QUOTE, start + 1) if start >= 0 else -1
        while end >= 0 and raw[end - 1] == _BACKSLASH and _escaped(raw, end):
            end = raw.find(_QUOTE, end + 1)
            looked += 1
        if end < 0:
            break
        if (
            end - start > _LONG
            and _FIELD.search(raw, max(0, start - _KEPT), start)
            and _is_data(raw, start + _KEPT, end)
        ):
            cuts.append((start + _KEPT, end))
        at = end + 1
        looked += 1
    return cuts


def _escaped(raw: bytes, quote: int) -> bool:
    at = quote - 1
    while raw[at] == _BACKSLASH:
        at -= 1
    return (quote - at) % 2 == 0


def _is_data(raw: bytes, begin: int, end: int) -> bool:
    return not any(raw[at : min(at + _PIECE, end)].translate(None, _ALPHABET) for at in range(begin, end, _PIECE))


__all__ = ["LARGE", "Light", "lighten"]
