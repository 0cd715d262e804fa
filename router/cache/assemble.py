"""A stream's chunks put together to the plain answer that the replica would have given.

Strict: what it does not fully understand gives None, and is not kept. Strings of a delta are joined, lists are
extended, tool calls are merged by their index; a field that should be constant and is not ends it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import orjson

from router.cache import messages, responses
from router.cache.events import Unclear, data_of, split_events

_CHUNK_OF = {"chat.completions": "chat.completion.chunk", "completions": "text_completion"}
_WHOLE_OF = {"chat.completions": "chat.completion", "completions": "text_completion"}
_AT_ONCE = 100
"""Events between two pauses, some hundred microseconds."""
Json = dict[str, Any]

_FROM = {"responses": responses.from_events, "messages": messages.from_events}
"""Of the endpoints whose events are other ones."""


def from_stream(raw: bytes, kind: str) -> bytes | None:
    """Return the plain answer in a whole stream's bytes, usage included; None where anything is missing or unclear."""
    steps = assembling(raw, kind)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("bytes | None", end.value)


def assembling(raw: bytes, kind: str) -> Generator[None, None, bytes | None]:
    """Do what `from_stream` does, yielding now and then: a long answer must not hold up other requests."""
    try:
        if kind in _FROM:
            return _FROM[kind](raw)
        return (yield from _assembled(raw, kind))
    except (Unclear, orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _assembled(raw: bytes, kind: str) -> Generator[None, None, bytes]:
    top: Json = {}
    choices: dict[int, Json] = {}
    usage: Any = None
    ended = False
    head_before: Json = {}
    silent: Json = {}
    texts: dict[int, list[str]] = {}
    for number, event in enumerate(split_events(raw), 1):
        if number % _AT_ONCE == 0:
            yield
        data = data_of(event)
        if data is None:
            continue
        if ended:
            raise Unclear
        if data == b"[DONE]":
            ended = True
            continue
        chunk = orjson.loads(data)
        if chunk.get("object") != _CHUNK_OF[kind]:
            raise Unclear
        for choice in chunk.pop("choices"):
            text = _only_text(choice.get("delta"))
            if text is not None:
                choice["delta"] = None
                if choice == silent:
                    # Nearly every chunk of a long answer: nothing but text, beside fields that say nothing.
                    texts[choice["index"]].append(text)
                    continue
                choice["delta"] = {"content": text}
            _join(texts, choices)
            _add_choice(choices.setdefault(_index(choice), {}), choice)
            if text is not None and all(v is None for k, v in choice.items() if k not in ("index", "delta")):
                silent = {**choice, "delta": None}
                texts.setdefault(choice["index"], [])
        usage = chunk.pop("usage", None) or usage
        if chunk != head_before:
            head_before = dict(chunk)
            _constants(top, chunk)
    _join(texts, choices)
    if not ended or not choices or not isinstance(usage, dict):
        raise Unclear
    if sorted(choices) != list(range(len(choices))):
        raise Unclear
    whole = [_finished(choices[i], i, kind) for i in range(len(choices))]
    return orjson.dumps({**top, "object": _WHOLE_OF[kind], "choices": whole, "usage": usage})


def _only_text(delta: Any) -> str | None:
    if type(delta) is dict and len(delta) == 1:
        text = delta.get("content")
        return text if type(text) is str else None
    return None


def _join(texts: dict[int, list[str]], choices: dict[int, Json]) -> None:
    for index, parts in texts.items():
        if parts:
            message = choices[index].setdefault("message", {})
            message["content"] = (message.get("content") or "") + "".join(parts)
            parts.clear()


def _index(item: Json) -> int:
    index = item["index"]
    if not isinstance(index, int):
        raise Unclear
    return index


def _add_choice(into: Json, choice: Json) -> None:
    for name, value in choice.items():
        if value is None or name == "index":
            into.setdefault(name, None)
        elif name == "delta":
            _add_delta(into.setdefault("message", {}), value)
        elif name == "text":
            into["text"] = into.get("text", "") + _string(value)
        elif name == "logprobs":
            into[name] = _extended(into.get(name) or {}, value)
        elif isinstance(value, list):
            into[name] = (into.get(name) or []) + value
        else:
            _constant(into, name, value)


def _add_delta(message: Json, delta: Json) -> None:
    for name, value in delta.items():
        if value is None:
            message.setdefault(name, None)
        elif name == "role":
            _constant(message, name, value)
        elif name == "tool_calls":
            calls: dict[int, Json] = message.setdefault(name, {}) or {}
            message[name] = calls
            for call in value:
                _add_call(calls.setdefault(_index(call), {}), call)
        elif name == "function_call":
            message[name] = _add_function(message.get(name) or {}, value)
        elif isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        else:
            _constant(message, name, value)


def _add_call(call: Json, part: Json) -> None:
    for name, value in part.items():
        if value is None or name == "index":
            continue
        if name == "function":
            call[name] = _add_function(call.get(name) or {}, value)
        else:
            _constant(call, name, value)


def _add_function(function: Json, part: Json) -> Json:
    for name, value in part.items():
        if value is None:
            continue
        if name == "arguments":
            function[name] = function.get(name, "") + _string(value)
        else:
            _constant(function, name, value)
    return function


def _extended(into: Json, lists: Json) -> Json:
    for name, value in lists.items():
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, list):
            into[name] = (into.get(name) or []) + value
        else:
            raise Unclear
    return into


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise Unclear
    return value


def _constants(into: Json, chunk: Json) -> None:
    for name, value in chunk.items():
        if value is None:
            into.setdefault(name, None)
        else:
            _constant(into, name, value)


def _constant(into: Json, name: str, value: object) -> None:
    if into.get(name) is None:
        into[name] = value
    elif into[name] != value:
        raise Unclear


def _finished(choice: Json, index: int, kind: str) -> Json:
    out = {**choice, "index": index}
    if kind == "completions":
        if "text" not in out:
            raise Unclear
        return out
    message: Json = out.pop("message")
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        if sorted(calls) != list(range(len(calls))):
            raise Unclear
        message["tool_calls"] = [calls[i] for i in range(len(calls))]
        message["content"] = message.get("content") or None
    elif message.get("content") is None:
        message["content"] = None
    return {"index": index, "message": {"role": "assistant", **message}, **out}
