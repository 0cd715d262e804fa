"""Cheap features of a conversation: counts of bytes by class, words, and cues of the kind of work.

One pass maps each byte of the UTF-8 text to a class, the rest is counting in C. Nearly all are shares or densities, so that a
long history does not by itself make a request look hard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

from classifier.conversation import BASE64, Conversation
from classifier.cues import CHINESE, CHINESE_PATTERN, ENGLISH, ENGLISH_WORDS, KINDS
from classifier.form import VARIETY_CHARS, ends_of, is_small_talk, odd_form

FEATURE_VERSION = 4
"""Grows whenever a feature's meaning changes: an artefact fits one version only."""

NAMES = (
    "log_tokens",
    "digit_share",
    "log_digits",
    "operator_share",
    "log_operators",
    "symbol_share",
    "upper_share",
    "newline_share",
    "log_lines",
    "word_length",
    "questions",
    "log_sentences",
    "comma_share",
    "distinct_words",
    "han_share",
    "other_script_share",
    "fenced_code",
    "latex",
    *(f"cue_{kind}" for kind in KINDS),
)
"""The features, in the order of a vector."""
GROWING = frozenset(
    ("log_tokens", "log_digits", "log_operators", "log_lines", "questions", "log_sentences", "fenced_code", "latex")
) | {name for name in NAMES if name.startswith("cue_")}
"""Features that counts make: appended text can raise but not lower them."""

(
    _DIGIT,
    _UPPER,
    _LOWER,
    _SPACE,
    _NEWLINE,
    _OPERATOR,
    _SYMBOL,
    _STOP,
    _COMMA,
    _HAN,
    _OTHER,
    _CONTINUATION,
    _QUESTION,
    _ODD,
) = (b"dulsnoyechwtqx"[i : i + 1] for i in range(14))


def _classes() -> bytes:
    table = bytearray(_ODD * 256)

    def put(chars: bytes, name: bytes) -> None:
        for char in chars:
            table[char] = name[0]

    put(b"0123456789", _DIGIT)
    put(bytes(range(65, 91)), _UPPER)
    put(bytes(range(97, 123)), _LOWER)
    put(b" \t\r\x0b\x0c", _SPACE)
    put(b"\n", _NEWLINE)
    put(b"+-*/=^<>%", _OPERATOR)
    put(b"{}[]()_`\\$#|&;@~", _SYMBOL)
    put(b".!", _STOP)
    put(b"?", _QUESTION)
    put(b",:'\"", _COMMA)
    put(bytes(range(0x80, 0xC0)), _CONTINUATION)
    put(bytes(range(0xC0, 0x100)), _OTHER)
    # UTF-8 leads of U+4000 to U+9FFF: nearly all Han characters in use.
    put(bytes(range(0xE4, 0xEA)), _HAN)
    return bytes(table)


_CLASS = _classes()
# Letters and digits stay, everything else becomes a space; letters are lowered on the way.
_WORDS = bytes(
    c + 32 if 65 <= c <= 90 else c if 48 <= c <= 57 or 97 <= c <= 122 or c >= 0x80 else 32 for c in range(256)
)
_UNCOUNTED_BYTES = bytes(c for c in range(256) if _CLASS[c : c + 1] in (_LOWER, _SPACE, _CONTINUATION, _ODD))
_HAN_CHARS = 600
"""Characters in which Chinese cues are looked up, half at either end."""


@dataclass(frozen=True, slots=True)
class Features:
    """What models score."""

    vector: tuple[float, ...]
    """One number per name in `NAMES`."""
    words: frozenset[bytes]
    """The distinct lower-case words of the conversation, UTF-8."""
    conversation: Conversation
    """Where they come from."""
    sequence: Sequence[bytes] = ()
    """The words in their order, repetitions included."""
    odd: str = ""
    """What is unlikely about the text's form (`form.odd_form`); empty when nothing is."""
    small_talk: bool = False
    """Greetings, thanks and the like, and nothing else."""
    ends: tuple[frozenset[str], frozenset[str]] | None = None
    """What `form.ends_of` says of the text."""


def extract(conversation: Conversation) -> Features:
    """Return the features of a conversation. Cost is bounded by `conversation.MAX_CHARS`."""
    text = conversation.text.strip()
    if "base64," in text:
        text = BASE64.sub(" ", text)
    ends = ends_of(text)
    found = measure(text, conversation, ends)
    return Features(
        found.vector,
        found.words,
        conversation,
        found.sequence,
        odd_form(text, found.sequence, found.words, ends),
        is_small_talk(text, found.words),
        ends,
    )


def measure(
    text: str, conversation: Conversation, ends: tuple[frozenset[str], frozenset[str]] | None = None
) -> Features:
    """Return the features of `text`, all or a piece of the conversation's, as if the whole turn were like it.

    `ends` is what `form.ends_of` says of it, where that is known already; of a piece, the same set twice: that of one end.
    """
    # Lone surrogates are legal in JSON and have no UTF-8 form.
    raw = text.encode("utf-8", "replace")
    # What nothing counts goes first: small letters, blanks and the rest of a character's bytes are most of a text.
    classes = raw.translate(_CLASS, _UNCOUNTED_BYTES)
    han = other = 0
    if len(raw) > len(text):
        size_before = len(classes)
        classes = classes.translate(None, _HAN)
        han = size_before - len(classes)
        other = classes.count(_OTHER)
    count = classes.count
    digits = count(_DIGIT)
    operators = count(_OPERATOR)
    newlines = count(_NEWLINE)
    stops = count(_STOP)
    questions = count(_QUESTION)
    commas = count(_COMMA)
    if other:
        stops += text.count("。") + text.count("！")
        questions += text.count("？")
        commas += text.count("，") + text.count("：") + text.count("、")
    chars = len(text) or 1
    words = raw.translate(_WORDS).split()
    distinct = frozenset(words)
    word_count = len(words)
    distinct_count = len(distinct)
    size = float(chars)
    if han:
        first, last = ends or ends_of(text)
        seen = min(chars, VARIETY_CHARS if first is last else 2 * VARIETY_CHARS)
        # A Han character carries about as much as three Latin letters, and 1.7 of them make a word: with these, shares and
        # lengths mean the same in both scripts.
        size += 2.0 * han
        word_count += int(han / 1.7)
        # Heaps' law with an English exponent, less where the same characters come again and again.
        variety = min(len(first | last) / (0.6 * (han * seen / chars) ** 0.8), 1.0)
        distinct_count += int(variety * (han / 1.7) ** 0.9)
    # A few typical words more: in a very short text, shares would say little and swing widely.
    turn_size = size
    size += 57.0
    word_count += 10
    distinct_count += 9
    # The counts are those of a text as long as the longest turn: a history repeats them, it does not make them harder.
    turn = conversation.longest_chars / chars if conversation.longest_chars else 1.0
    scale = min(turn, 1.0)
    cues = [0] * len(KINDS)
    for word in distinct & ENGLISH_WORDS:
        for kind in ENGLISH[word]:
            cues[kind] += 1
    if han:
        part = text if chars <= _HAN_CHARS else text[: _HAN_CHARS // 2] + " " + text[-_HAN_CHARS // 2 :]
        for cue in frozenset(CHINESE_PATTERN.findall(part)):
            for kind in CHINESE[cue]:
                cues[kind] += 1
    vector = (
        log1p(turn * turn_size / 4.2),
        digits / size,
        log1p(digits * scale),
        operators / size,
        log1p(operators * scale),
        count(_SYMBOL) / size,
        count(_UPPER) / size,
        newlines / size,
        log1p(newlines * scale),
        min(size / word_count, 24.0),
        min(questions * scale, 8.0),
        log1p((stops + questions) * scale),
        commas / size,
        distinct_count / word_count,
        3.0 * han / turn_size,
        other / turn_size,
        float("```" in text),
        float("$" in text or "\\" in text),
        *[log1p(cue) for cue in cues],
    )
    return Features(vector, distinct, conversation, words)
