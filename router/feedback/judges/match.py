"""Short answers: the same words or not, whatever their case, spaces and punctuation.

It tells only where full precision's answer is short. Whether it tells must not depend on the other answer: a judge that
spoke only of equal pairs would call every precision perfect.
"""

from __future__ import annotations

import re
import unicodedata

from router.feedback.judges.pair import Judge, Pair, Tools, Verdict, text_of

_LONGEST = 48
"""Characters of a short answer, normalised."""
_NUMBER_SIGNS = re.compile(r"(?<=\d)[,](?=\d{3}\b)")


def normalised(text: str) -> str:
    """Return the words alone, in lower case; decimal points and minus signs of numbers stay."""
    text = unicodedata.normalize("NFKC", text[:4096]).lower()
    text = _NUMBER_SIGNS.sub("", text)
    text = re.sub(r"(?<=\d)\.(?=\d)", "\0", text)
    text = re.sub(r"(?<!\w)-(?=\d)", "\1", text)
    kept = re.sub(r"[^\w\x00\x01]+", " ", text).strip()
    return kept.replace("\0", ".").replace("\1", "-")


def make(_: Tools) -> Judge:
    """Return the judge."""

    async def judge(pair: Pair) -> Verdict | None:
        reference = normalised(text_of(pair.reference))
        if not reference or len(reference) > _LONGEST or len(text_of(pair.reference)) > 4 * _LONGEST:
            return None
        return Verdict(float(normalised(text_of(pair.answer)) == reference), 1.0)

    return judge
