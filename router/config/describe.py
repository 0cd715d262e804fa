"""The schema in words: what a field expects, its unit, its sentence. Read from the schema, so it cannot disagree."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from router.config.problems import Path
from router.config.schema import Config

Fragment = Mapping[str, Any]
"""A piece of JSON Schema."""

_UNITS = {
    "_per_s": "per second",
    "_ms": "milliseconds",
    "_gb_s": "GB/s",
    "_s": "seconds",
    "_mib": "MiB",
    "_gib": "GiB",
    "_tflops": "TFLOP/s",
    "parameters_b": "billions",
}
_NOUNS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$": "a name of letters, digits and . _ / : - that begins with a letter or digit",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable",
}


@cache
def schema() -> Fragment:
    """JSON Schema of the configuration file (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "Bitgear configuration",
    }


def resolved(fragment: Fragment) -> Fragment:
    """The fragment that a `$ref` names, with what is said beside the reference; without the null of an optional."""
    if "$ref" in fragment:
        target: Fragment = schema()["$defs"][str(fragment["$ref"]).rsplit("/", 1)[1]]
        fragment = {**target, **{k: v for k, v in fragment.items() if k != "$ref"}}
    if "anyOf" in fragment:
        others = [o for o in fragment["anyOf"] if o.get("type") != "null"]
        if len(others) == 1:
            return {**resolved(others[0]), **{k: v for k, v in fragment.items() if k != "anyOf"}}
    return fragment


def nullable(fragment: Fragment) -> bool:
    """Whether null is allowed."""
    return any(o.get("type") == "null" for o in fragment.get("anyOf", ()))


def at(path: Iterable[str | int]) -> Fragment | None:
    """The fragment that holds at `path`, references unresolved; None where the schema has no such place."""
    here = schema()
    for part in path:
        below = child(resolved(here), part)
        if below is None:
            return None
        here = below
    return here


def child(fragment: Fragment, part: str | int) -> Fragment | None:
    """The fragment of one key or index inside a resolved fragment."""
    if fragment.get("type") == "array":
        items = fragment.get("items")
        number = isinstance(part, int) or part.isdecimal()
        return items if number and isinstance(items, dict) else None
    found = fragment.get("properties", {}).get(part)
    if found is None:
        extra = fragment.get("additionalProperties")
        return extra if isinstance(extra, dict) else None
    return found if isinstance(found, dict) else None


def known(path: Path) -> list[str]:
    """Names of the fields that a mapping at `path` may have; empty where any key goes."""
    fragment = at(path)
    return list(resolved(fragment).get("properties", ())) if fragment is not None else []


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that `name` most likely means; None when nothing is near."""
    found = difflib.get_close_matches(name.lower().replace("-", "_"), list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def unit(name: str) -> str:
    """Unit of a field by its name's ending; empty where it has none."""
    return next((word for ending, word in _UNITS.items() if name.endswith(ending)), "")


def expected(fragment: Fragment, name: str = "") -> str:
    """What may be written there: `a whole number from 0 to 65535`, `realtime, batch or edge`, ..."""
    words = _expected(resolved(fragment), name)
    return f"{words}, or null" if nullable(fragment) else words


def _expected(fragment: Fragment, name: str) -> str:
    if "enum" in fragment or "const" in fragment:
        return _either([str(v) for v in fragment.get("enum", (fragment.get("const"),))])
    kind = fragment.get("type", "")
    if kind == "array":
        least = f" (at least {fragment['minItems']})" if fragment.get("minItems") else ""
        return f"a list{least}: each {expected(fragment.get('items', {}))}"
    if kind == "object":
        if "properties" in fragment:
            return "a mapping of " + ", ".join(fragment["properties"])
        names = fragment.get("propertyNames", {}).get("enum")
        keys = _either([str(n) for n in names]) if names else "a name"
        return f"a mapping from {keys} to {expected(fragment.get('additionalProperties', {}))}"
    if fragment.get("pattern") in _PATTERNS:
        return _PATTERNS[str(fragment["pattern"])]
    return f"{_NOUNS.get(kind, 'a value')}{_range(fragment)}" + (f" ({unit(name)})" if unit(name) else "")


def _range(fragment: Fragment) -> str:
    low, high = fragment.get("minimum"), fragment.get("maximum")
    above, below = fragment.get("exclusiveMinimum"), fragment.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {_plain(low)} to {_plain(high)}"
    parts = [
        f"{word} {_plain(limit)}"
        for word, limit in (("of at least", low), ("of at most", high), ("above", above), ("below", below))
        if limit is not None
    ]
    return " " + " and ".join(parts) if parts else ""


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def defaults(model: BaseModel) -> dict[str, Any]:
    """A settings object as plain data, every default filled in."""
    return model.model_dump(mode="json")


__all__ = [
    "Fragment",
    "at",
    "child",
    "defaults",
    "expected",
    "known",
    "nearest",
    "nullable",
    "resolved",
    "schema",
    "unit",
]
