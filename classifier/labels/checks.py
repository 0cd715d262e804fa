"""Is an answer right? One function per kind of task, one line each in `CHECKS`."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_CHOICE = re.compile(r"(?<![A-Za-z])\(?([A-J])\)?(?![A-Za-z'])")
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*\n(.*?)(?:```|\Z)", re.DOTALL)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def numbers(text: str) -> list[Decimal]:
    """Return the numbers in a text, in order; commas between digits are thousands."""
    found = []
    for word in _NUMBER.findall(unicodedata.normalize("NFKC", text)):
        try:
            found.append(Decimal(word.replace(",", "")).normalize())
        except InvalidOperation:
            continue
    return found


def choice(text: str) -> str | None:
    """Return the first letter that stands alone and names an option (A to J), or None."""
    found = _CHOICE.search(unicodedata.normalize("NFKC", text))
    return found[1] if found else None


def right_number(text: str, accepted: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    """Whether the last number is an accepted one."""
    found = numbers(text)
    return bool(found) and any(found[-1] == number for one in accepted for number in numbers(one)[-1:])


def right_choice(text: str, accepted: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    """Whether the first option named is an accepted one."""
    return choice(text) in {one.strip().upper()[:1] for one in accepted}


def right_text(text: str, accepted: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    """Whether the answer is an accepted one, or begins with it at a word's end; signs around it don't count."""
    own = _bare(text)
    return any(own == one or (one and re.match(rf"{re.escape(one)}(?!\w)", own)) for one in map(_bare, accepted))


def right_code(text: str, accepted: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    """Whether the first block of code (or the whole answer) parses as Python and isn't empty; it is never run."""
    block = _FENCE.search(text)
    try:
        return bool(ast.parse(block[1] if block else text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def right_json(text: str, accepted: Sequence[str], schema: Mapping[str, Any] | None) -> bool:
    """Whether the answer (or its first block) is JSON that fits the schema."""
    block = _FENCE.search(text)
    try:
        value = json.loads(block[1] if block else text)
    except (ValueError, RecursionError):
        return False
    return schema is None or fits(value, schema)


def fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits a schema, by `type`, `enum`, `const`, `required`, `properties`, `additionalProperties: false`
    and `items`; other keywords are not looked at."""
    kinds = schema.get("type")
    if kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        types = tuple(kind for name in listed for kind in _TYPES.get(name, ()))
        if not isinstance(value, types) or (isinstance(value, bool) and "boolean" not in listed):
            return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        if schema.get("additionalProperties") is False and not set(value) <= set(known):
            return False
        return all(fits(item, known[name]) for name, item in value.items() if name in known)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return all(fits(item, schema["items"]) for item in value)
    return True


def _bare(text: str) -> str:
    return re.sub(r"^\W+|\W+$", "", " ".join(unicodedata.normalize("NFKC", text).casefold().split()))


Check = Callable[[str, Sequence[str], Mapping[str, Any] | None], bool]
CHECKS: Mapping[str, Check] = {
    "number": right_number,
    "choice": right_choice,
    "text": right_text,
    "code": right_code,
    "json": right_json,
}
"""Kind of task to the function that says whether an answer is right."""
