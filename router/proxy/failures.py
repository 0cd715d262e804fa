"""Refusals and failures of a replica: which of them others may take over, and what the client is told at the end."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import orjson

from backends.wire import UpstreamError
from router.proxy.errors import ApiError

_TIMEOUTS = ("connect_timeout", "first_token_timeout", "between_tokens_timeout", "total_timeout")


@dataclass(eq=False)
class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A replica's answer that another replica may better.

    `overloaded`: 429 or 503, honoured for that replica. `broken`: another 5xx, or our own key refused. `too_long`: the
    request exceeds this variant's context length.
    """

    kind: Literal["overloaded", "broken", "too_long"]
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def __str__(self) -> str:
        """Return one line for the log; the body stays out, it may quote the prompt."""
        return f"the replica answered HTTP {self.status}"


def classify(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Refused | None:
    """Return what a non-2xx answer means for trying elsewhere; None when it is the client's own error."""
    if status in (429, 503):
        return Refused("overloaded", status, headers, body)
    if status >= 500 or status in (401, 403):
        return Refused("broken", status, headers, body)
    if status == 400 and _is_too_long(body):
        return Refused("too_long", status, headers, body)
    return None


def _is_too_long(body: bytes) -> bool:
    error = _error_of(body)
    message = str(error.get("message", ""))
    return (
        error.get("code") == "context_length_exceeded"
        or "maximum context length" in message
        or "max_model_len" in message
        or "longer than the maximum model length" in message
    )


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        error = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def is_client_error(event: str) -> bool:
    """Return whether an error event inside a stream blames the request (a 4xx code), not the replica."""
    try:
        code = orjson.loads(event).get("code")
    except (orjson.JSONDecodeError, AttributeError):
        return False
    return isinstance(code, int) and 400 <= code < 500


def retry_after_s(headers: list[tuple[bytes, bytes]], now_unix: float) -> float | None:
    """Return `Retry-After` in seconds from now (a number, or an HTTP date); None without a usable one."""
    for name, value in headers:
        if name == b"retry-after":
            text = value.decode("latin-1").strip()
            try:
                return max(0.0, float(text)) if float(text) < float("inf") else None
            except ValueError:
                pass
            try:
                return max(0.0, parsedate_to_datetime(text).timestamp() - now_unix)
            except (TypeError, ValueError, OverflowError):
                return None
    return None


def to_client(error: UpstreamError | Refused, retry_s: float) -> ApiError:
    """Return the client's error when nobody else can take over; `retry_s` is the smallest wait of all replicas."""
    if isinstance(error, UpstreamError):
        if error.own:
            return ApiError(503, "Bitgear is at its limit of connections.", None, "overloaded", 1.0)
        if error.failure in _TIMEOUTS:
            return ApiError(504, f"The variant did not answer in time ({error.failure}).", None, error.failure)
        return ApiError(
            502, f"The variant could not be reached or broke off ({error.failure}).", None, "upstream_error"
        )
    if error.kind == "overloaded":
        code = "rate_limit_exceeded" if error.status == 429 else "overloaded"
        return ApiError(error.status, "Every replica that may serve this request is overloaded.", None, code, retry_s)
    if error.status in (401, 403):
        return ApiError(502, "The variant refused Bitgear's own credentials.", None, "upstream_auth")
    return ApiError(502, f"The variant failed with HTTP {error.status}.", None, "upstream_error")
