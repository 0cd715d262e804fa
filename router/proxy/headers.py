"""Which headers go up to a replica, which come back, and the decision in a header."""

from __future__ import annotations

from urllib.parse import quote

from router.decision.types import Decision

_UP = frozenset(
    {
        b"accept",
        b"content-type",
        b"user-agent",
        b"traceparent",
        b"tracestate",
        b"baggage",
        b"anthropic-version",
        b"anthropic-beta",
    }
)
_DOWN = frozenset({b"content-type", b"content-encoding", b"retry-after"})


def upstream_headers(
    headers: list[tuple[bytes, bytes]], request_id: str, own: list[tuple[bytes, bytes]], *, as_json: bool = True
) -> list[tuple[bytes, bytes]]:
    """Return the headers for the replica: the client's credentials stay here, Bitgear's own for that server go along.

    With `as_json` the body is JSON, whatever the client called it (curl's default is a form).
    """
    up = [h for h in headers if h[0] in _UP and not (as_json and h[0] == b"content-type")]
    if as_json:
        up.append((b"content-type", b"application/json"))
    up.append((b"x-request-id", request_id.encode()))
    up.extend(own)
    return up


def with_credential(headers: list[tuple[bytes, bytes]], key: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers with this key alone in those that name one: by another one beside it, whoever has one key could be
    as many tenants as it likes."""
    kept = [h for h in headers if h[0] != b"authorization" and h[0] != b"x-api-key"]
    return [*kept, (b"authorization", b"Bearer " + key), (b"x-api-key", key)]


def downstream_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the replica's headers that a client may see."""
    return [h for h in headers if h[0] in _DOWN]


def content_type(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the media type in lower case, without parameters; empty where there is none."""
    for name, value in headers:
        if name == b"content-type":
            return value.partition(b";")[0].strip().lower()
    return b""


def decision_header(group: str, decision: Decision, replica: int | None, simulated: bool) -> bytes:
    """Return `x-bitgear-decision`: key=value pairs, a semicolon between them."""
    parts = [
        f"group={group if group.isascii() else quote(group)}",
        f"variant={decision.variant or 'none'}",
        f"replica={'none' if replica is None else replica}",
        f"risk={decision.risk:.4f}",
        f"threshold={decision.threshold:.4f}",
        f"scenario={decision.scenario}",
        f"policy={decision.version}",
        f"reason={decision.reason}",
    ]
    if simulated:
        parts.append("simulated=true")
    return "; ".join(parts).encode("latin-1", "replace")
