"""Whether a JSON value is what a JSON Schema asks for: the keywords that structured output uses.

type, properties, required, additionalProperties, items, enum, const, anyOf, bounds of numbers and lengths. Keywords
beyond these are not looked at: patterns come from clients, and a bad one would hold up the process. So would a list of
many choices against a list of many items: steps are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEPTH = 32
MOST_STEPS = 20_000
"""Schemas, choices and names that are looked at for one value: some milliseconds."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


class TooLarge(Exception):  # noqa: N818 - says how far it goes
    """To tell takes more than `MOST_STEPS`."""


class _Steps:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_STEPS

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooLarge


def conforms(value: Any, schema: Any) -> bool:
    """Return whether it is; below a depth of 32 everything is. Raises TooLarge."""
    return _conforms(value, schema, 0, _Steps())


def _conforms(value: Any, schema: Any, depth: int, steps: _Steps) -> bool:
    steps.take(1)
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return schema is not False
    wanted = schema.get("type")
    if isinstance(wanted, list):
        steps.take(len(wanted))
    if not _of_type(value, wanted):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    allowed = schema.get("enum")
    if isinstance(allowed, list):
        steps.take(len(allowed))
        if value not in allowed:
            return False
    options = schema.get("anyOf")
    if isinstance(options, list) and options and not any(_conforms(value, o, depth + 1, steps) for o in options):
        return False
    if isinstance(value, dict):
        return _object(value, schema, depth, steps)
    if isinstance(value, list):
        items = schema.get("items", True)
        return _within(len(value), schema, "minItems", "maxItems") and all(
            _conforms(v, items, depth + 1, steps) for v in value
        )
    if isinstance(value, str):
        return _within(len(value), schema, "minLength", "maxLength")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _within(value, schema, "minimum", "maximum")
    return True


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], depth: int, steps: _Steps) -> bool:
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    if isinstance(required, list):
        steps.take(len(required))
        if any(isinstance(name, str) and name not in value for name in required):
            return False
    other = schema.get("additionalProperties", True)
    return all(_conforms(item, known.get(name, other), depth + 1, steps) for name, item in value.items())


def _of_type(value: Any, wanted: Any) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    known = [name for name in names if isinstance(name, str) and name in _TYPES]
    return not known or any(_is(value, name) for name in known)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if not isinstance(value, _TYPES[name]):
        return False
    return name != "integer" or not isinstance(value, float) or value.is_integer()


def _within(size: float, schema: Mapping[str, Any], least: str, most: str) -> bool:
    low: Any = schema.get(least)
    high: Any = schema.get(most)
    return not (_is(low, "number") and size < low) and not (_is(high, "number") and size > high)
