"""Request bodies: parsed once, strictly, and changed in their bytes only where something must change."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from router.proxy.errors import ApiError, bad_field

Body = dict[str, Any]

_SPACED_KEY = re.compile(rb'"[ \t\r\n]+:')
_OPENING = re.compile(rb"^[ \t\r\n]*\{")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_SCALAR = re.compile(rb'[^"{\[][^,}\] \t\r\n]*')
_QUOTE = 0x22


def parse_body(raw: bytes) -> Body:
    """Return the body's object. Raises ApiError 400 that says what is wrong and where.

    Stricter than most parsers: NaN, duplicate keys and invalid UTF-8 are refused, since the replica's parser might
    read such a body in another way than this one.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(
            400,
            f"body: not valid JSON: {error.msg} at line {error.lineno} column {error.colno}",
            "body",
            "invalid_json",
        ) from None
    if not isinstance(body, dict):
        raise ApiError(400, f"body: expected an object, found {json_type(body)}", "body", "invalid_json")
    if _may_repeat_keys(raw, body):
        _refuse_duplicates(raw)
    return body


def json_type(value: object) -> str:
    """Return JSON's name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def _may_repeat_keys(raw: bytes, body: Body) -> bool:
    # In valid JSON a `":` outside a string ends a key, and one inside is written `\":`. So, unless a key is followed
    # by a space or ends in a backslash, bytes and tree count the same keys; only where they differ is it worth a look.
    colons = raw.count(b'":') - raw.count(b'\\":')
    return colons != _count_keys(body) or b'\\\\":' in raw or _SPACED_KEY.search(raw) is not None


def _count_keys(value: Body) -> int:
    count = 0
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if type(item) is dict:
            count += len(item)
            item = item.values()
        for child in item:
            kind = type(child)
            if kind is dict or kind is list:
                todo.append(child)
    return count


class _DuplicateKeyError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def _refuse_duplicates(raw: bytes) -> None:
    try:
        json.loads(raw, object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        name = str(error)[:100]
        raise bad_field(name, "this key stands twice in one object", "duplicate_key") from None
    except (ValueError, RecursionError):
        # What the strict parser has read, this one may find too deep or too long (an integer of thousands of digits).
        raise ApiError(400, "body: nested too deeply, or a number too long", "body", "invalid_json") from None


def with_model(raw: bytes, body: Body, served: str) -> bytes:
    """Return the bytes with `model` replaced; all others stay as they are."""
    begin, end = _model_span(raw, body["model"])
    return raw[:begin] + orjson.dumps(served) + raw[end:]


def with_usage(raw: bytes, body: Body) -> bytes:
    """Return the bytes of a streamed request with `stream_options.include_usage` set; all others stay as they are."""
    if "stream_options" not in body:
        return _OPENING.sub(b'{"stream_options":{"include_usage":true},', raw, count=1)
    begin, end = _value_span(raw, "stream_options")
    return raw[:begin] + orjson.dumps({**(body["stream_options"] or {}), "include_usage": True}) + raw[end:]


def _model_span(raw: bytes, model: str) -> tuple[int, int]:
    # Written once, and no letter of a key escaped: then this is the one, and a search is all it takes.
    if raw.count(b'"model"') == 1 and b"\\u00" not in raw:
        value = orjson.dumps(model)
        colon = _COLON.match(raw, raw.index(b'"model"') + 7)
        if colon is not None and raw.startswith(value, colon.end()):
            return colon.end(), colon.end() + len(value)
    return _value_span(raw, "model")


def _value_span(raw: bytes, name: str) -> tuple[int, int]:
    """Return where the value of one of the body's own keys begins and ends; the body is valid and has the key once."""
    depth, begin = 0, -1
    for token in _TOKEN.finditer(raw):
        first = raw[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        if depth != 1:
            continue
        if begin >= 0:
            return begin, token.end()
        colon = _COLON.match(raw, token.end()) if first == _QUOTE else None
        if colon is not None and orjson.loads(token[0]) == name:
            begin = colon.end()
            scalar = _SCALAR.match(raw, begin)
            if scalar is not None:
                return scalar.span()
    raise KeyError(name)
