"""Kept answers of `/v1/responses`: which are whole, out of a stream, and as one.

Events: https://platform.openai.com/docs/api-reference/responses-streaming; the last one holds the whole answer.
"""

from __future__ import annotations

from typing import Any

import orjson

from router.cache.events import Unclear, data_of, split_events

Json = dict[str, Any]
_ENDS = ("response.completed", "response.incomplete")
_TEXTS = {"output_text": "response.output_text", "reasoning_text": "response.reasoning_text"}
_ITEMS = frozenset({"message", "reasoning", "function_call"})


def is_whole(answer: Json, limited: bool) -> bool:
    """Return whether this answer may be kept: ended by itself or by the request's own limit, made of known items.

    What has no place in a stream that is replayed (calls of tools on the server, refusals) is not kept.
    """
    if answer.get("object") != "response" or answer.get("error") is not None or answer.get("store") is True:
        return False
    status, output = answer.get("status"), answer.get("output")
    details = answer.get("incomplete_details")
    cut = status == "incomplete" and isinstance(details, dict) and details.get("reason") == "max_output_tokens"
    if not (status == "completed" or (cut and limited)):
        return False
    return isinstance(output, list) and bool(output) and all(_is_known(item) for item in output)


def _is_known(item: object) -> bool:
    if not isinstance(item, dict) or item.get("type") not in _ITEMS or not isinstance(item.get("id"), str):
        return False
    if item["type"] == "function_call":
        return isinstance(item.get("arguments"), str)
    content = item.get("content")
    if item["type"] == "reasoning" and (item.get("summary") or not content):
        return False
    if not isinstance(content, list):
        return False
    return all(isinstance(p, dict) and p.get("type") in _TEXTS and isinstance(p.get("text"), str) for p in content)


def from_events(raw: bytes) -> bytes:
    """Return the plain answer in a whole stream's bytes. Raises Unclear where the stream has no proper end."""
    told = [data for event in split_events(raw) if (data := data_of(event)) is not None]
    if told and told[-1] == b"[DONE]":
        told.pop()
    if not told or any(b'"response.failed"' in data or data.startswith(b'{"error"') for data in told):
        raise Unclear
    last = orjson.loads(told[-1])
    if last.get("type") not in _ENDS or not isinstance(last.get("response"), dict):
        raise Unclear
    return orjson.dumps(last["response"])


def as_events(answer: Json) -> bytes:
    """Return a kept answer as the events of a stream, one delta for each text."""
    events: list[Json] = []
    begun = {**answer, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events.append({"type": "response.created", "response": begun})
    events.append({"type": "response.in_progress", "response": begun})
    for index, item in enumerate(answer["output"]):
        events.extend(_item(item, index))
    # Of an answer that its limit cut too: so does vLLM, and OpenAI's client wants to see this event.
    events.append({"type": "response.completed", "response": answer})
    out: list[bytes] = []
    for number, event in enumerate(events):
        body = orjson.dumps({**event, "sequence_number": number})
        out.append(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), body))
    return b"".join(out)


def _item(item: Json, index: int) -> list[Json]:
    where: Json = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        told = {**where, "arguments": item["arguments"], "name": item.get("name")}
        inner: list[Json] = [
            {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", **told},
        ]
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        inner = []
        for number, part in enumerate(item["content"]):
            inner.extend(_part(part, {**where, "content_index": number}))
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    return [added, *inner, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _part(part: Json, where: Json) -> list[Json]:
    kind, text = _TEXTS[part["type"]], part["text"]
    empty = {**part, "text": ""}
    scores: Json = {}
    if part["type"] == "output_text":
        empty["logprobs"] = []
        scores = {"logprobs": part.get("logprobs") or []}
    return [
        {"type": "response.content_part.added", **where, "part": empty},
        {"type": f"{kind}.delta", **where, "delta": text, **scores},
        {"type": f"{kind}.done", **where, "text": text, **scores},
        {"type": "response.content_part.done", **where, "part": part},
    ]
