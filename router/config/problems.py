"""What is wrong with a configuration, in words: where, which field, what was found, what was expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Where a value is: keys and list indices from the top."""

_PASSWORD = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*(?=@)")
_LONGEST = 60


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a file and its line (from 1), or an environment variable."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One mistake: what was found and expected, or `says` where it is between several fields."""

    origin: Origin
    field: str
    found: str = ""
    expected: str = ""
    hint: str = ""
    says: str = ""

    def __str__(self) -> str:
        text = f"{self.origin}: {self.field}" if self.field else str(self.origin)
        parts = [self.says] if self.says else []
        if self.found:
            parts.append(f"found {self.found}")
        if self.expected:
            parts.append(f"expected {self.expected}")
        text += ": " + ", ".join(parts)
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` lists every mistake, in order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.origin.source, p.origin.line or 0)))
        super().__init__(str(self))

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return str(self.problems[0])
        return "\n".join([f"{len(self.problems)} mistakes:", *(f"  {p}" for p in self.problems)])


def dotted(path: Path) -> str:
    """`('groups', 'g', 'backends', 0)` as `groups.g.backends[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def masked(text: str) -> str:
    """`text` with the user and password of every URL hidden."""
    return _PASSWORD.sub("***", text)


def shown(value: object) -> str:
    """A value in words, short, without passwords, and never walking far into it."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        text = "a very long number" if isinstance(value, int) and abs(value) >= 10**50 else str(value)
        return f"the number {text}" if isinstance(value, int | float) and text[0] != "a" else text
    if isinstance(value, str):
        text = masked(value)
        return f"the text {text[:_LONGEST]!r}" + ("…" if len(text) > _LONGEST else "")
    if isinstance(value, dict):
        return f"a mapping with {len(value)} {'entry' if len(value) == 1 else 'entries'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__}"


__all__ = ["ConfigError", "Origin", "Path", "Problem", "dotted", "masked", "shown"]
