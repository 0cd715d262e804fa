"""The guard `content`: numbers, names, code, opposites and order must be equal, other words may differ.

Weaker than `guard`, which asks for every word: here ordinary words may differ, so a vector has to say that the two mean
the same. What a vector is known to overlook must be equal, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from router.cache.semantic.guard import core
from router.cache.semantic.phrases import CONTRACTIONS, POLITE, THANKS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBERS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion half "
    "quarter third double triple twice dozen first second last next previous once"
)
_TIMES = _words(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december today tomorrow yesterday now before after since until during morning noon "
    "afternoon evening night spring summer autumn fall winter year month week day hour minute second early late"
)
_NEGATIONS = _words(
    "not no never none nobody nothing neither nor without except unless avoid stop lack hardly rarely seldom "
    "instead only"
)
_OPPOSITES = _words(
    "on off up down in out high low higher lower raise reduce increase decrease more less most least fewer few many "
    "best worst better worse good bad big small large little tall short long old new young hot cold warm cool rich "
    "poor easy hard fast slow strong weak safe unsafe dangerous legal illegal possible impossible true false left "
    "right north south east west top bottom inside outside above below over under start end begin finish open close "
    "add remove delete drop insert buy sell rent lend borrow win lose enable disable show hide push pull import "
    "export encode decode encrypt decrypt upload download minimum maximum min max cheap expensive advantage "
    "advantages disadvantage disadvantages pro con pros cons positive negative male female man woman boy girl "
    "husband wife mother father son daughter brother sister king queen boiling freezing melting biggest smallest "
    "largest tallest shortest longest oldest newest youngest fastest slowest highest lowest hottest coldest cause "
    "causes caused effect effects prevent from to by than versus vs against both either own other same different "
    "difference common cancel renew read write send receive give take ask answer question married single alive dead "
    "public private full empty wet dry light heavy dark"
)
_ASKED = _words(
    "who whom whose when where why can could should must may might shall will would need was were am will did had "
    "summarize summarise explain describe list translate rewrite compare define write compose compute calculate "
    "prove solve draw correct classify extract count sort rank recommend suggest name choose select all some any "
    "every each i me my you your we us our he him his she her they them their it its this that these those"
)
"""What is asked for, and of whom."""
_FREE = _words("which how what the a an is are do does be of for and me please")
"""Words whose order does not matter."""
_KEPT = (_NUMBERS, _TIMES, _NEGATIONS, _OPPOSITES, _ASKED)
_PREFIXED = re.compile(r"(?:un|in|im|ir|il|dis|non|mis|anti|de)[a-z]{4,}")
_UNITS = re.compile(
    r"(?:[kmcdnµu]?(?:m|g|l|s|w|v|hz|b|bit|byte)|km|mi|ft|in|lb|oz|kg|°?[cf]|mph|km/h|%|\$|€|£|¥|usd|eur|gbp|cny|"
    r"(?:kilo|centi|milli|mega|giga|tera)?(?:metre|meter|gram|litre|liter|watt|byte|bit|hertz)s?|miles?|feet|foot|"
    r"inch(?:es)?|pounds?|ounces?|celsius|fahrenheit|kelvin|dollars?|euros?|percent|degrees?)"
)
_TOKEN = re.compile(r"[^\s]+")
_ENDS = ".,;:!?()[]{}\"'“”‘’"
_STOPS = ".,;:!?"
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|‘[^’]*’|(?<!\w)'[^']*'(?!\w)")
_CODE = re.compile(r"[_=<>{}\\/|&*^~$#@+\[\]`]|\w\.\w|\w\(|[a-z][A-Z]|\d[A-Za-z]|[A-Za-z]\d")
_CHINESE = re.compile("[\u4e00-\u9fff]")


class Content(NamedTuple):
    """One question, as `compatible` compares it."""

    kept: tuple[str, ...]
    """What must be equal."""
    words: tuple[str, ...]
    """All words but the smallest, of which those in common must stand in the same order."""


def content(text: str) -> Content | None:
    """Return a question's content; None for a text that only matches itself. In Chinese every word is kept."""
    words = core(text)
    if words is None:
        return None
    if _CHINESE.search(text):
        return Content(words, words)
    plain = THANKS.sub("", POLITE.sub("", text.strip()))
    for pattern, other in CONTRACTIONS:
        plain = pattern.sub(other, plain)
    kept: list[str] = [f"quoted {q}" for q in _QUOTED.findall(plain)]
    rest: list[str] = []
    begins = True
    tokens = _TOKEN.findall(plain)
    for i, token in enumerate(tokens):
        word = token.strip(_ENDS)
        if not word or token.strip(_STOPS) != word or token[0] == "!":
            # Brackets, quotes, and signs that stand alone.
            kept.append(token)
        if not word:
            continue
        if token[-1] in ".;:!?" and i < len(tokens) - 1:
            # What follows belongs to another thought.
            kept.append("/")
        lower = word.lower()
        if lower not in _FREE:
            rest.append(lower)
        if _is_kept(word, lower, begins) or _CODE.search(token.rstrip(_ENDS)):
            kept.append(word if word[0].islower() or not begins else lower)
        begins = token[-1] in ".!?"
    return Content(tuple(kept), tuple(rest))


def _is_kept(word: str, lower: str, begins: bool) -> bool:
    if any(c.isdigit() for c in word) or any(lower in words for words in _KEPT) or lower.rstrip("s") in _TIMES:
        return True
    if (_UNITS.fullmatch(lower) and lower not in ("a", "i")) or _PREFIXED.match(lower):
        return True
    # A name: written large where no sentence begins, or in a way that no sentence asks for.
    return (word[0].isupper() and not begins) or word[1:] != word[1:].lower()


def compatible(one: Content, other: Content) -> bool:
    """Return whether two questions may mean the same, as far as words tell: the vector has to say the rest."""
    return one.kept == other.kept and in_order(one.words, other.words)


def in_order(one: Sequence[Hashable], other: Sequence[Hashable]) -> bool:
    """Return whether the words (or what stands for them) that two questions have in common stand in the same order."""
    common = set(one) & set(other)
    return [w for w in one if w in common] == [w for w in other if w in common]
