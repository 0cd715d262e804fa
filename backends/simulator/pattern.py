"""A short text that a regular expression matches, for the common part of the syntax."""

from __future__ import annotations

import re
import warnings

_ESCAPES = {
    "d": "0",
    "w": "a",
    "s": " ",
    "D": "a",
    "W": "-",
    "S": "a",
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "",
    "B": "",
}
_CANDIDATES = ("a", "0", "A", " ", "-", "_", ".", "b", "1")
_MOST = 4096


class UnsupportedPatternError(ValueError):
    """A pattern for which no text was found."""


def example(pattern: str) -> str:
    """A short text in which `pattern` is found. Raises UnsupportedPatternError."""
    try:
        expression = _compiled(pattern)
    except re.error as error:
        raise UnsupportedPatternError(f"{pattern!r}: {error}") from None
    try:
        text = _Generator(pattern).run()
    except IndexError:
        raise UnsupportedPatternError(f"{pattern!r} is beyond this simulator") from None
    if expression.search(text) is None:
        raise UnsupportedPatternError(f"{pattern!r} is beyond this simulator")
    return text


def _compiled(pattern: str) -> re.Pattern[str]:
    # What Python may read otherwise one day (`[[`) is no matter of whoever runs the simulator.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern)


class _Generator:
    """Reads the pattern once and takes the first alternative and the least repetition everywhere."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def run(self) -> str:
        text = self._alternatives()
        if self._at != len(self._pattern):
            raise UnsupportedPatternError(f"{self._pattern!r} is beyond this simulator")
        return text

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._pattern[self._at]
        self._at += 1
        return character

    def _alternatives(self) -> str:
        first = self._sequence()
        while self._peek() == "|":
            self._at += 1
            self._sequence()
        return first

    def _sequence(self) -> str:
        text = ""
        while (character := self._peek()) and character not in "|)":
            text += self._repeated(self._atom())
            if len(text) > _MOST:
                raise UnsupportedPatternError(f"{self._pattern!r} is too long for this simulator")
        return text

    def _atom(self) -> str:
        character = self._next()
        if character == "(":
            looks = self._pattern[self._at : self._at + 2] in ("?=", "?!", "?<") and not re.match(
                r"\?<[A-Za-z_]", self._pattern[self._at : self._at + 3]
            )
            if (prefix := re.compile(r"\?(?::|=|!|P?<\w+>|<[=!])").match(self._pattern, self._at)) is not None:
                self._at = prefix.end()
            text = self._alternatives()
            self._next()
            return "" if looks else text
        if character == "[":
            return self._set()
        if character == "\\":
            escaped = self._next()
            return _ESCAPES.get(escaped, escaped)
        if character in "^$":
            return ""
        return "a" if character == "." else character

    def _set(self) -> str:
        start = self._at - 1
        if self._peek() == "^":
            self._at += 1
        if self._peek() == "]":
            self._at += 1
        while self._peek() != "]":
            if self._next() == "\\":
                self._next()
        self._at += 1
        members = _compiled(self._pattern[start : self._at])
        printable = (*_CANDIDATES, *map(chr, range(32, 127)), *map(chr, range(0x4E00, 0x4E10)))
        for candidate in printable:
            if members.fullmatch(candidate):
                return candidate
        raise UnsupportedPatternError(f"{self._pattern!r} is beyond this simulator")

    def _repeated(self, text: str) -> str:
        quantifier = re.compile(r"([*+?]|\{(\d*)(,?)(\d*)\})[?+]?").match(self._pattern, self._at)
        if quantifier is None:
            return text
        self._at = quantifier.end()
        sign = quantifier.group(1)
        if sign in ("*", "?"):
            return ""
        times = 1 if sign == "+" else int(quantifier.group(2) or 0)
        return text * min(times, _MOST)


__all__ = ["UnsupportedPatternError", "example"]
