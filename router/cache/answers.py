"""Which answers are kept, and a kept answer as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from router.cache import messages, responses
from router.proxy.usage import Usage, usage_of

_DONE = b"data: [DONE]\n\n"
_WHOLE = frozenset({"stop", "tool_calls", "function_call"})
Json = dict[str, Any]
_OTHERS: dict[str, tuple[Callable[[Json, bool], bool], Callable[[Json], bytes]]] = {
    "responses": (responses.is_whole, responses.as_events),
    "messages": (messages.is_whole, messages.as_events),
}
"""Endpoints whose answers and streams look otherwise."""


def checked(body: bytes, kind: str, limited: bool) -> Usage | None:
    """Return the usage of an answer that may be kept, None for any other.

    It must be whole (`length` only counts as an end where the request itself set the limit: `limited`), neither
    refused nor filtered, without an error, and it must tell its usage, which a stream may be asked for.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict) or answer.get("error") is not None:
        return None
    try:
        return _kept(answer, kind, limited)
    except TypeError:
        # A list or an object where a word belongs: no answer that can be made out.
        return None


def _kept(answer: Json, kind: str, limited: bool) -> Usage | None:
    usage = usage_of(answer.get("usage"))
    if kind == "embeddings":
        data = answer.get("data")
        return usage if isinstance(data, list) and data else None
    if kind in _OTHERS:
        return usage if _OTHERS[kind][0](answer, limited) else None
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(_is_whole(c, kind, limited) for c in choices):
        return None
    return usage


def _is_whole(choice: object, kind: str, limited: bool) -> bool:
    # A stream numbers its choices; without a number, an entry could be read but never be replayed as one.
    if not isinstance(choice, dict) or choice.get("error") is not None or not isinstance(choice.get("index"), int):
        return False
    reason = choice.get("finish_reason")
    if reason not in _WHOLE and not (reason == "length" and limited):
        return False
    if kind == "completions":
        return isinstance(choice.get("text"), str)
    message = choice.get("message")
    if not isinstance(message, dict) or message.get("refusal"):
        return False
    calls = message.get("tool_calls")
    return calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def as_stream(body: bytes, kind: str, usage: bool) -> bytes:
    """Return a kept plain answer as the events of a stream; with the usage event where it was asked for."""
    answer: Json = orjson.loads(body)
    if kind in _OTHERS:
        return _OTHERS[kind][1](answer)
    choices: list[Json] = answer.pop("choices")
    told = answer.pop("usage", None)
    head = {name: value for name, value in answer.items() if value is not None}
    chunks: list[Json] = []
    if kind == "completions":
        chunks = [{"choices": [choice]} for choice in choices]
    else:
        head["object"] = "chat.completion.chunk"
        for choice in choices:
            chunks.extend({"choices": [part]} for part in _deltas(choice))
    # What belongs to the whole answer and not to each chunk comes with the first one.
    common = {name: head[name] for name in ("id", "object", "created", "model") if name in head}
    chunks[0] = {**head, **chunks[0]}
    if usage and told is not None:
        chunks.append({"choices": [], "usage": told})
    events = [b"data: " + orjson.dumps({**common, **chunk}) + b"\n\n" for chunk in chunks]
    return b"".join([*events, _DONE])


def _deltas(choice: Json) -> list[Json]:
    index, message = choice["index"], dict(choice["message"])
    first = {"role": message.pop("role", "assistant"), "content": ""}
    rest = {name: value for name, value in message.items() if value is not None and value != []}
    if "tool_calls" in rest:
        rest["tool_calls"] = [{"index": i, **call} for i, call in enumerate(rest["tool_calls"])]
    more = {n: v for n, v in choice.items() if n not in ("index", "message", "finish_reason", "stop_reason")}
    none: Json = {"logprobs": None, "finish_reason": None}
    last: Json = {"index": index, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    if "stop_reason" in choice:
        last["stop_reason"] = choice["stop_reason"]
    parts = [{"index": index, "delta": first, **none}]
    if rest or any(value is not None for value in more.values()):
        parts.append({"index": index, "delta": rest, **none, **more})
    return [*parts, last]
