"""Answers that end in a number or a letter: whether both end in the same one.

As `match`, it tells where full precision's answer has such an end, whatever the other one looks like.
"""

from __future__ import annotations

import re

from router.feedback.judges.pair import Judge, Pair, Tools, Verdict, text_of

_NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
_MARKED = (
    re.compile(r"####\s*\$?(" + _NUMBER + ")"),
    re.compile(r"\\boxed\{\s*\$?(" + _NUMBER + r"|[A-Ja-j])\s*\}"),
    re.compile(r"\b(?:final answer|answer)\b\s*(?:is|:|=)*\s*\**\$?\(?(" + _NUMBER + r"|[A-J])\b", re.IGNORECASE),
)
_LINE = re.compile(r"\(?([A-J])[).:]?")
_TAIL = 400
"""Characters at an answer's end in which it is looked for."""


def final(text: str) -> str | None:
    """Return the number (as plainly as it can be written) or the letter that the text ends in, or None."""
    tail = text[-_TAIL:].strip()
    for pattern in _MARKED:
        found = pattern.findall(tail)
        if found:
            return _plain(found[-1])
    last = tail.rpartition("\n")[2].strip().strip("*")
    letter = _LINE.fullmatch(last)
    if letter is not None:
        return letter[1].upper()
    number = re.fullmatch(r"\$?(" + _NUMBER + r")\.?", last)
    return _plain(number[1]) if number is not None else None


def _plain(found: str) -> str:
    digits = found.replace(",", "")
    if re.fullmatch(r"-?\d+(\.\d+)?", digits):
        whole, _, part = digits.partition(".")
        part = part.rstrip("0")
        negative = whole.startswith("-")
        whole = whole.lstrip("-").lstrip("0") or "0"
        plain = f"{whole}.{part}" if part else whole
        return f"-{plain}" if negative and plain != "0" else plain
    return found.upper()


def make(_: Tools) -> Judge:
    """Return the judge."""

    async def judge(pair: Pair) -> Verdict | None:
        reference = final(text_of(pair.reference))
        if reference is None:
            return None
        return Verdict(float(final(text_of(pair.answer)) == reference), 1.0)

    return judge
