"""Proving a replica ready by a real completion: a server whose `/health` is 200 may die at its first request."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from backends.wire.connection import Connection, Limits
from backends.wire.errors import UpstreamError
from backends.wire.pool import Pool

_PROBE_TOKENS = 8
_MAX_BODY = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one real completion showed."""

    ttft_s: float
    itl_s: float | None
    """Mean time between tokens; None when the answer had a single token."""
    prompt_tokens: int
    max_model_len: int | None
    """Context length from `/v1/models`, where the server says it."""


async def get(pool: Pool, path: bytes, headers: list[tuple[bytes, bytes]], limits: Limits) -> tuple[int, bytes]:
    """Return status and body of a GET; raise UpstreamError."""
    connection = await pool.request(b"GET", path, headers, b"", limits)
    try:
        body = await connection.read_all(_MAX_BODY)
        return connection.status, body
    finally:
        pool.release(connection)


async def probe(pool: Pool, model: str, headers: list[tuple[bytes, bytes]], timeout_s: float) -> ProbeResult:
    """Stream one short completion from a replica and time it.

    Raises UpstreamError when the replica does not answer, or answers anything but a completion.
    """
    limits = Limits(
        connect_s=min(2.0, timeout_s), first_token_s=timeout_s, between_tokens_s=timeout_s, total_s=timeout_s
    )
    max_model_len = await _max_model_len(pool, model, headers, limits)
    body = orjson.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": _PROBE_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    began = time.monotonic()
    connection = await pool.request(
        b"POST", b"/v1/chat/completions", [(b"content-type", b"application/json"), *headers], body, limits
    )
    try:
        times, usage = await _read_stream(connection)
    finally:
        pool.release(connection)
    itl = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None
    tokens = usage.get("prompt_tokens")
    return ProbeResult(times[0] - began, itl, tokens if isinstance(tokens, int) else 0, max_model_len)


async def _max_model_len(pool: Pool, model: str, headers: list[tuple[bytes, bytes]], limits: Limits) -> int | None:
    status, body = await get(pool, b"/v1/models", headers, limits)
    if status != 200:
        return None
    try:
        entries = orjson.loads(body).get("data", [])
        for entry in entries:
            if entry.get("id") == model and isinstance(entry.get("max_model_len"), int):
                return int(entry["max_model_len"])
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return None
    return None


async def _read_stream(connection: Connection) -> tuple[list[float], dict[str, Any]]:
    while connection.headers is None and not connection.done:
        await connection.wait()
    if connection.status != 200:
        body = await connection.read_all(_MAX_BODY)
        text = body[:300].decode("utf-8", "replace")
        raise UpstreamError("protocol", f"the probe's completion was answered with HTTP {connection.status}: {text}")
    times: list[float] = []
    usage: dict[str, Any] = {}
    buffer = b""
    ended = False
    while True:
        piece = connection.take()
        if piece is None:
            if connection.error is not None:
                raise connection.error
            if connection.done:
                break
            await connection.wait()
            continue
        buffer = (buffer + piece).replace(b"\r\n", b"\n")
        if len(buffer) > _MAX_BODY:
            raise UpstreamError("protocol", "the probe's completion is not a stream of events")
        *events, buffer = buffer.split(b"\n\n")
        for event in events:
            if not event.startswith(b"data:"):
                continue
            data = event[5:].strip()
            if data == b"[DONE]":
                ended = True
                continue
            token, usage = _one_event(data, usage)
            if token:
                times.append(time.monotonic())
    if not ended or not times:
        raise UpstreamError("protocol", "the probe's completion ended without a token or without [DONE]")
    return times, usage


def _one_event(data: bytes, usage: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    try:
        event = orjson.loads(data)
        if "error" in event:
            raise UpstreamError("protocol", f"the probe's completion failed: {str(event['error'])[:300]}")
        usage = dict(event.get("usage") or usage)
        choices = event.get("choices") or []
        delta = choices[0].get("delta") or {} if choices else {}
        finished = bool(choices) and choices[0].get("finish_reason") is not None
        token = bool(delta.get("content") or delta.get("reasoning") or delta.get("tool_calls"))
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise UpstreamError("protocol", "the probe's completion is not a chat completion stream") from error
    return token or finished, usage
