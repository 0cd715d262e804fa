"""A provider's failure in OpenAI's shape, with nothing of the provider's credentials in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

_KINDS = {
    400: "BadRequestError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    413: "RequestEntityTooLarge",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}


class HostedError(Exception):
    """What the client is told: a status, a message, the field that is wrong, and Retry-After as the provider sent it."""

    def __init__(self, status: int, message: str, param: str | None = None, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> bytes:
        """`{"error": {"message", "type", "param", "code"}}`."""
        kind = _KINDS.get(self.status, "InternalServerError" if self.status >= 500 else "BadRequestError")
        return orjson.dumps(
            {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}
        )

    def event(self) -> bytes:
        """An event within a stream that began with status 200, and the stream's end."""
        return b"data: " + self.body() + b"\n\ndata: [DONE]\n\n"


def error_of(error: Exception, secrets: Iterable[str]) -> HostedError:
    """What to tell the client about an exception of litellm; `secrets` never appear in it.

    The provider refusing this backend's own credentials (401, 403) is no fault of the client's key, so it becomes 502,
    as does a provider that cannot be reached; its timeout becomes 504.
    """
    message = str(getattr(error, "message", None) or error)
    for secret in secrets:
        if secret:
            message = message.replace(secret, "***")
    status = _status(error)
    param = getattr(error, "param", None)
    return HostedError(status, message, param if isinstance(param, str) else None, _retry_after(error))


def _status(error: Exception) -> int:
    if isinstance(error, TimeoutError) or type(error).__name__ == "Timeout":
        return 504
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return 500
    if status in (401, 403):
        return 502
    # litellm calls what never reached the provider, or broke on the way, an internal error without an answer
    if status == 500 and not _headers(error):
        return 502
    return status if 400 <= status <= 599 else 500


def _headers(error: Exception) -> Any:
    return getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )


def _retry_after(error: Exception) -> str | None:
    headers = _headers(error)
    value = headers.get("retry-after") if headers else None
    return None if value is None else str(value)


__all__ = ["HostedError", "error_of"]
