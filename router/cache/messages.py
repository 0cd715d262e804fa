"""Kept answers of `/v1/messages`: which are whole, put together from a stream, and as one.

Events: https://docs.anthropic.com/en/docs/build-with-claude/streaming.
"""

from __future__ import annotations

from typing import Any

import orjson

from router.cache.events import Unclear, data_of, split_events

Json = dict[str, Any]
_WHOLE = frozenset({"end_turn", "tool_use", "stop_sequence"})
_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
}
_DELTAS = {
    "text_delta": ("text", "text", "text"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "signature_delta": ("thinking", "signature", "signature"),
    "input_json_delta": ("tool_use", "partial_json", "input"),
}
"""Of each delta: the block's type, the delta's field, the block's field."""


def is_whole(answer: Json, limited: bool) -> bool:
    """Return whether this answer may be kept: ended by itself or by the request's own limit, made of known blocks."""
    reason, content = answer.get("stop_reason"), answer.get("content")
    if answer.get("type") != "message" or not (reason in _WHOLE or (reason == "max_tokens" and limited)):
        return False
    return isinstance(content, list) and bool(content) and all(_is_known(block) for block in content)


def _is_known(block: object) -> bool:
    if not isinstance(block, dict) or block.get("type") not in _FIELDS:
        return False
    kind = block["type"]
    if any(value is not None and name not in _FIELDS[kind] for name, value in block.items()):
        return False
    if kind == "tool_use":
        return isinstance(block.get("input"), dict)
    return isinstance(block.get(kind), str)


def from_events(raw: bytes) -> bytes:
    """Return the plain answer in a whole stream's bytes. Raises Unclear where anything is missing or unknown."""
    message: Json | None = None
    blocks: list[Json] = []
    texts: dict[tuple[int, str], list[str]] = {}
    usage: Json = {}
    ended = False
    for event in split_events(raw):
        data = data_of(event)
        if data is None or data == b"[DONE]":
            continue
        value = orjson.loads(data)
        kind = value.get("type")
        if ended or (message is None) != (kind == "message_start"):
            if kind == "ping":
                continue
            raise Unclear
        if kind == "message_start":
            message = dict(value["message"])
            usage.update(message.pop("usage", None) or {})
        elif kind == "content_block_start":
            if value["index"] != len(blocks):
                raise Unclear
            blocks.append(dict(value["content_block"]))
        elif kind == "content_block_delta":
            of, field, into = _DELTAS[value["delta"]["type"]]
            if blocks[value["index"]]["type"] != of:
                raise Unclear
            texts.setdefault((value["index"], into), []).append(value["delta"][field])
        elif kind == "message_delta":
            assert message is not None
            message.update(value["delta"])
            usage.update({n: v for n, v in (value.get("usage") or {}).items() if v is not None})
        elif kind == "message_stop":
            ended = True
        elif kind not in ("content_block_stop", "ping"):
            raise Unclear
    if not ended or message is None:
        raise Unclear
    for (index, into), parts in texts.items():
        text = "".join(parts)
        block = blocks[index]
        block[into] = orjson.loads(text or "{}") if into == "input" else (block.get(into) or "") + text
    return orjson.dumps({**message, "content": blocks, "usage": usage})


def as_events(answer: Json) -> bytes:
    """Return a kept answer as the events of a stream, one delta for each text."""
    usage: Json = answer.get("usage") or {}
    head = {**answer, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 0}}
    events: list[Json] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(answer["content"]):
        events.extend(_block(block, index))
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": answer.get("stop_sequence")}
    events.append({"type": "message_delta", "delta": delta, "usage": usage})
    events.append({"type": "message_stop"})
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)


def _block(block: Json, index: int) -> list[Json]:
    kind: str = block["type"]
    inner: list[Json] = []
    if kind == "tool_use":
        begun = {**block, "input": {}}
        inner.append({"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()})
    else:
        begun = {**block, kind: ""}
        inner.append({"type": f"{kind}_delta", kind: block[kind]})
        if block.get("signature"):
            begun["signature"] = ""
            inner.append({"type": "signature_delta", "signature": block["signature"]})
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in inner),
        {"type": "content_block_stop", "index": index},
    ]
