"""Errors in the client's own format: OpenAI's, or Anthropic's on `/v1/messages`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    431: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


@dataclass(eq=False)
class ApiError(Exception):
    """An error for the client: status, sentence, the field at fault, a machine-readable code."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    @property
    def type(self) -> str:
        """OpenAI's class of error for this status."""
        return _TYPES.get(self.status, "server_error")

    def body(self, dialect: str = "openai") -> bytes:
        """Return the JSON body."""
        if dialect == "anthropic":
            kind = {"server_error": "api_error"}.get(self.type, self.type)
            return orjson.dumps({"type": "error", "error": {"type": kind, "message": self.message}})
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})

    def event(self, dialect: str) -> bytes:
        """Return the error as an event within a stream that has already begun."""
        if dialect == "anthropic":
            return b"event: error\ndata: " + self.body(dialect) + b"\n\n"
        if dialect == "responses":
            error = {"type": "error", "code": self.code or self.type, "message": self.message, "param": self.param}
            return b"event: error\ndata: " + orjson.dumps(error) + b"\n\n"
        return b"data: " + self.body(dialect) + b"\n\n"

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return headers that belong to the error."""
        if self.retry_after_s is None:
            return []
        return [(b"retry-after", b"%d" % max(1, math.ceil(self.retry_after_s)))]


class MethodNotAllowed(ApiError):  # noqa: N818 - named after its status
    """A 405; every path that takes a body takes POST alone."""

    def __init__(self, message: str) -> None:
        super().__init__(405, message, None, "method_not_allowed")

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return `allow`."""
        return [(b"allow", b"POST")]


def bad_field(param: str, message: str, code: str | None = None) -> ApiError:
    """Return a 400 that names a field of the request."""
    return ApiError(400, f"{param}: {message}", param, code)
