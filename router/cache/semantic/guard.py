"""What two texts must have in common before their likeness counts: everything but words on short lists.

Numbers, names, negations, units, languages, directions, code, and every word that is on no list, must be the same and
in the same order. Embeddings of any size put `from Rome to Oslo` beside `from Oslo to Rome`; this does not.
"""

from __future__ import annotations

import re

from router.cache.semantic.phrases import (
    ARTICLES,
    CHINESE_POLITE,
    CHINESE_SAME,
    CHINESE_THANKS,
    CHINESE_WHAT,
    CONTRACTIONS,
    HOW_TO,
    POLITE,
    SAME,
    THANKS,
)

LONGEST = 1000
"""Characters; longer turns are hardly ever said twice in other words."""
_CHINESE = re.compile("[\u4e00-\u9fff]")
# Full-width forms of ASCII, which Chinese keyboards write.
_NARROW = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_ENDS = ".,;:!?"


def core(text: str) -> tuple[str, ...] | None:
    """Return the words that count, in order; None for a text that only matches itself (code, lists, several lines)."""
    text = text.strip()
    if not text or len(text) > LONGEST or "\n" in text or "`" in text:
        return None
    words = _chinese(text.translate(_NARROW)) if _CHINESE.search(text) else _english(text)
    return words or None


def _stripped(text: str, pattern: re.Pattern[str]) -> str:
    while True:
        shorter = pattern.sub("", text, count=1)
        if shorter == text or not shorter.strip():
            return text
        text = shorter.lstrip()


def _english(text: str) -> tuple[str, ...]:
    text = THANKS.sub("", _stripped(text, POLITE)) or text
    for pattern, plain in CONTRACTIONS:
        text = pattern.sub(plain, text)
    begun = HOW_TO.sub("how-to", text)
    found: list[str] = []
    tokens = begun.split()
    for i, token in enumerate(tokens):
        word = token.rstrip(_ENDS) or token
        if i == 0 and word[1:].islower():
            # The first word is written large for no reason of its own.
            word = word.lower()
        if word in ARTICLES:
            continue
        word = SAME.get(word, word)
        found.append(word)
        # A stop inside a text ends a thought: what follows belongs to another one.
        if token != word and token[-1] in ";:!?." and i < len(tokens) - 1:
            found.append("/")
    return tuple(found)


def _chinese(text: str) -> tuple[str, ...]:
    text = CHINESE_THANKS.sub("", _stripped(text, CHINESE_POLITE)) or text
    for other, one in CHINESE_SAME:
        text = text.replace(other, one)
    match = CHINESE_WHAT.match(text)
    if match is not None:
        text = "什么是" + (match[1] or match[2])
    return tuple(re.findall(r"[A-Za-z0-9.+#_-]+|\S", text))
