"""YAML into plain data, with the line of each value, and with YAML's traps defused.

Scalars follow YAML 1.2's core schema: `no` and `on` are text, `1e3` is a number. Keys are always text. An integer with
a leading zero is an error, since readers disagree about it. Aliases and nesting are bounded, tags are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from router.config.problems import ConfigError, Origin, Path, Problem, dotted, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_VALUES = 100_000
"""Values after expansion of aliases."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)$")
_PREFIXED = re.compile(r"0x[0-9a-fA-F]+$|0o[0-7]+$")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+$")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$")
_WORDS: dict[str, object] = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_MAX_DIGITS = 40


@dataclass
class Parsed:
    """Plain data, the line of each path (from 1), and mistakes that did not stop the reading."""

    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse(text: str, source: str) -> Parsed:
    """Read one YAML document. Raises ConfigError where the text is not YAML or is out of bounds."""
    reader = _Reader(text, source)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        found = " ".join(p for p in (error.context, error.problem) if p)
        hint = "indent with spaces; YAML allows no tabs" if "\\t" in found else ""
        raise ConfigError([Problem(Origin(source, line), "", found, "YAML", hint)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        found = f"the character U+{ord(error.character):04X}" if isinstance(error.character, str) else "a byte"
        raise ConfigError([Problem(Origin(source, line), "", found, "text that YAML allows")]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets an escape such as "\UFFFFFFFF" fail in chr().
        raise ConfigError([Problem(Origin(source), "", str(error) or type(error).__name__, "YAML")]) from None


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._source = source
        self._parsed = Parsed()
        self._anchors: dict[str, tuple[object, int]] = {}
        self._values = 0

    def document(self) -> Parsed:
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(event, (), "a second document", "one document in a file")
                self._parsed.data = self._value(next(self._events), (), 0)
        return self._parsed

    def _error(self, event: yaml.Event, path: Path, found: str, expected: str, hint: str = "") -> ConfigError:
        return ConfigError([self._problem(event, path, found, expected, hint)])

    def _problem(self, event: yaml.Event, path: Path, found: str, expected: str, hint: str = "") -> Problem:
        return Problem(Origin(self._source, _line(event)), dotted(path), found, expected, hint)

    def _count(self, event: yaml.Event, path: Path, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise self._error(event, path, "too many values (aliases included)", f"at most {MAX_VALUES}")

    def _value(self, event: yaml.Event, path: Path, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise self._error(event, path[:3], "nesting too deep", f"at most {MAX_DEPTH} levels")
        self._parsed.lines[path] = _line(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._error(event, path, f"the alias *{event.anchor}", "an anchor that is complete above it")
            value, size = self._anchors[event.anchor]
            self._count(event, path, size)
            return value
        before = self._values
        self._count(event, path, 1)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:str"):
                self._parsed.problems.append(self._problem(event, path, f"the tag {event.tag}", "a plain value"))
            value = self._untagged(event, path, depth)
            if event.anchor is not None:
                self._anchors[event.anchor] = (value, self._values - before)
            return value
        raise self._error(event, path, "an unexpected part of YAML", "a value")

    def _untagged(self, event: yaml.Event, path: Path, depth: int) -> object:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[object] = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._value(item, (*path, len(items)), depth + 1))
            return items
        return self._mapping(path, depth)

    def _mapping(self, path: Path, depth: int) -> dict[str, object]:
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        while not isinstance(key_event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(key_event, yaml.ScalarEvent):
                raise self._error(key_event, path, "a key that is not plain text", "a field's name")
            key = _whole(str(key_event.value))
            where = (*path, key)
            if key in own:
                first = self._parsed.lines[where]
                self._parsed.problems.append(
                    self._problem(key_event, where, f"the key a second time (first on line {first})", "it once")
                )
            value = self._value(next(self._events), where, depth + 1)
            if key == "<<" and key_event.style is None:
                self._merge(key_event, path, value, merged)
            else:
                self._parsed.lines[where] = _line(key_event)
                own[key] = value
        return {**merged, **own}

    def _merge(self, event: yaml.Event, path: Path, value: object, into: dict[str, object]) -> None:
        sources = value if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, dict):
                self._parsed.problems.append(self._problem(event, (*path, "<<"), shown(source), "a mapping to merge"))
                continue
            for key, item in source.items():
                into.setdefault(key, item)

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> object:
        text = _whole(str(event.value))
        if event.style is not None or event.tag is not None:
            return text
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in _WORDS:
            return _WORDS[text]
        if _LEADING_ZERO.match(text):
            plain = text.lstrip("+-0_") or "0"
            hint = f"readers disagree whether it is octal: write {plain}, or '{text}' for text"
            self._parsed.problems.append(self._problem(event, path, text[:_MAX_DIGITS], "no leading zero", hint))
            return text
        if _NOT_FINITE.match(text):
            self._parsed.problems.append(self._problem(event, path, text, "a finite number"))
            return text
        value = _number(text)
        if isinstance(value, float) and not math.isfinite(value):
            hint = "put it in quotes if it is meant as text"
            self._parsed.problems.append(self._problem(event, path, f"{text[:_MAX_DIGITS]}", "a finite number", hint))
            return text
        return value


def _whole(text: str) -> str:
    """`text` with pairs of surrogates (JSON's escapes) joined, and lone ones replaced by U+FFFD."""
    if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _number(text: str) -> object:
    """A number where the text is one by YAML 1.2's core schema (and `1_000`), otherwise the text itself.

    One too large to be held is infinite.
    """
    if len(text) > _MAX_DIGITS:
        return math.inf if _INTEGER.match(text) or _FLOAT.match(text) else text
    if _INTEGER.match(text) or _PREFIXED.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    return text


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark is not None else 1


__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_VALUES", "Parsed", "parse"]
