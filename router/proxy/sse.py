"""Passing a stream of server-sent events on, whole events at a time, byte for byte.

An event is of no use to a client before its end, so holding back an unfinished one costs nothing, and lets the relay
drop the usage event that Bitgear asked for and the client did not, see an error inside a 200 stream, and know when the
first token came and whether the stream ended as it should. After the first token nothing is parsed but events that
hold a usage, an error or an end mark, found by searching the bytes.
(Format: https://html.spec.whatwg.org/multipage/server-sent-events.html)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from router.proxy.surface import Dialect
from router.proxy.usage import Usage, usage_of_event

MAX_EVENT = 4 * 1024 * 1024
"""An unfinished event above this passes as it comes: memory stays bounded."""
MAX_HELD = 64 * 1024
"""Bytes before the first token that are held, so that a stream that dies there can be served by another replica."""

_END = re.compile(rb"\r\n\r\n|\n\n|\n\r\n|\r\r")
_ROLE_ONLY = {"role"}
_ENDS: dict[Dialect, frozenset[str]] = {
    "openai": frozenset(),
    "responses": frozenset({"response.completed", "response.incomplete", "response.failed"}),
    "anthropic": frozenset({"message_stop"}),
}


class StreamRelay:
    """Feed it the upstream's bytes, send on what it returns, and read what it learnt."""

    def __init__(self, dialect: Dialect, *, hide_usage: bool, rename: tuple[bytes, bytes] | None = None) -> None:
        self._dialect: Dialect = dialect
        self._hide_usage = hide_usage
        self._rename = rename
        self._tail = bytearray()
        self._oversize = False
        self._passed = b""
        self._held = bytearray()
        self.usage: Usage | None = None
        self.first_token = False
        """Whether an event with a token has come: from then on the answer has begun."""
        self.ended = False
        """Whether the stream's own end mark has come."""
        self.failed_first = False
        """Whether the stream's first sign of an answer was an error event."""
        self.error: str | None = None
        """What an error event inside the stream said."""

    @property
    def inside_event(self) -> bool:
        """Whether part of an unfinished (oversized) event has been sent on."""
        return self._oversize

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send on now; may be empty."""
        tail = self._tail
        if self._oversize:
            return self._pass_oversize(data)
        if tail:
            begin = max(0, len(tail) - 3)
            tail += data
            cut = _last_end(tail, begin)
            if cut == 0:
                return self._hold_tail()
            whole = bytes(tail[:cut])
            del tail[:cut]
        else:
            cut = len(data) if data.endswith(b"\n\n") else _last_end(data, 0)
            if cut < len(data):
                tail += data[cut:]
            if cut == 0:
                return self._hold_tail()
            whole = data if cut == len(data) else data[:cut]
        return self._events(whole)

    def last(self) -> bytes:
        """Return what is left to send on when the upstream has ended behind `[DONE]` without the empty line after it."""
        return self.feed(b"\n\n") if self._tail and _data_of(bytes(self._tail)) == b"[DONE]" else b""

    def finish(self) -> bytes:
        """Return what is left when the upstream has ended without error."""
        rest = bytes(self._tail)
        self._tail.clear()
        out = self._events(rest) if rest else b""
        held = bytes(self._held)
        self._held.clear()
        return held + out

    def _hold_tail(self) -> bytes:
        if len(self._tail) <= MAX_EVENT:
            return b""
        self._oversize = True
        self._passed = bytes(self._tail[-3:])
        self.first_token = True
        out = bytes(self._held) + self._renamed(bytes(self._tail))
        self._held.clear()
        self._tail.clear()
        return out

    def _pass_oversize(self, data: bytes) -> bytes:
        # The terminator may be cut: the last bytes that passed are looked at together with the next ones.
        joined = self._passed + data
        match = _END.search(joined)
        if match is None:
            self._passed = joined[-3:]
            return data
        self._oversize = False
        end = match.end() - len(self._passed)
        return data[:end] + self.feed(data[end:])

    def _events(self, whole: bytes) -> bytes:
        if self.first_token and b'"usage"' not in whole and b'"error"' not in whole and not self._may_end(whole):
            return self._renamed(whole)
        out = bytearray()
        for event in _split(whole):
            out += self._event(event)
        return bytes(out)

    def _may_end(self, whole: bytes) -> bool:
        if self._dialect == "openai":
            return b"[DONE]" in whole
        return b"response." in whole if self._dialect == "responses" else b"message_" in whole

    def _event(self, event: bytes) -> bytes:
        data = _data_of(event)
        if data is None:
            return event
        if data == b"[DONE]":
            self.ended = True
            return self._release(event)
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._release(event)
        if not isinstance(value, dict):
            return self._release(event)
        return self._object(event, value)

    def _object(self, event: bytes, value: dict[str, Any]) -> bytes:
        kind = value.get("type")
        if value.get("error") or kind in ("error", "response.failed"):
            self.failed_first = not self.first_token
            detail = value.get("error") or value.get("response") or value
            self.error = orjson.dumps(detail).decode()[:300]
            return self._release(event)
        if isinstance(kind, str) and kind in _ENDS[self._dialect]:
            self.ended = True
        self.usage = usage_of_event(value, self.usage)
        if self._hide_usage and value.get("usage") is not None:
            if not value.get("choices"):
                return b""
            del value["usage"]
            event = b"data: " + orjson.dumps(value) + b"\n\n"
        if self.first_token or _has_token(value, self._dialect):
            return self._release(event)
        self._held += self._renamed(event)
        if len(self._held) > MAX_HELD:
            return self._release(b"")
        return b""

    def _release(self, event: bytes) -> bytes:
        self.first_token = True
        if not self._held:
            return self._renamed(event)
        out = bytes(self._held) + self._renamed(event)
        self._held.clear()
        return out

    def _renamed(self, data: bytes) -> bytes:
        return data if self._rename is None else rename_model(data, *self._rename)


def rename_model(data: bytes, served: bytes, asked: bytes) -> bytes:
    """Return an answer's bytes with the model's name as the client named it.

    `served` and `asked` are JSON strings. Inside a JSON string every quote is escaped, so these bytes can only be the
    field itself.
    """
    return data.replace(b'"model":' + served, b'"model":' + asked).replace(b'"model": ' + served, b'"model": ' + asked)


def _last_end(data: bytes | bytearray, begin: int) -> int:
    end = 0
    for match in _END.finditer(data, begin):
        end = match.end()
    return end


def _split(whole: bytes) -> list[bytes]:
    events = []
    begin = 0
    for match in _END.finditer(whole):
        events.append(whole[begin : match.end()])
        begin = match.end()
    if begin < len(whole):
        events.append(whole[begin:])
    return events


def _data_of(event: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    if not lines:
        return None
    return (lines[0] if len(lines) == 1 else b"\n".join(lines)).strip()


def _has_token(value: Mapping[str, Any], dialect: Dialect) -> bool:
    if dialect == "responses":
        kind = str(value.get("type"))
        return kind.endswith((".delta", ".done")) or kind in _ENDS["responses"]
    if dialect == "anthropic":
        return value.get("type") in ("content_block_delta", "message_delta", "message_stop")
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return not isinstance(choices, list)
    for choice in choices:
        if not isinstance(choice, dict) or choice.get("finish_reason") is not None or choice.get("text"):
            return True
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(v for k, v in delta.items() if k not in _ROLE_ONLY):
            return True
    return False
