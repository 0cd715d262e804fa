"""Errors in vLLM's shape and words."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import orjson

_MAX_ERRORS = 10
_MAX_TEXT = 200


class RequestError(Exception):
    """A request that is answered with an error.

    `body()` is what vLLM would answer: `{"error": {"message", "type", "param", "code"}}`.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.headers = headers

    def body(self) -> bytes:
        """JSON for a response."""
        return orjson.dumps(self._content())

    def event(self) -> bytes:
        """An event within a stream that began with status 200, and the stream's end."""
        return b"data: " + json.dumps(self._content()).encode() + b"\n\ndata: [DONE]\n\n"

    def _content(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


def parameter_error(message: str, param: str, value: object) -> RequestError:
    """A parameter that cannot be served, as vLLM words it."""
    return RequestError(f"{message} (parameter={param}, value={value})", param=param)


def model_error(name: str, known: tuple[str, ...]) -> RequestError:
    """A model that is not served here."""
    return RequestError(
        f"The model `{name}` does not exist. Valid aliases: {', '.join(known)}.",
        status=404,
        kind="NotFoundError",
        param="model",
    )


def too_long_error(tokens: int, limit: int) -> RequestError:
    """A prompt that leaves no room in the context; vLLM stops counting at one token too many."""
    least = min(tokens, limit + 1)
    return parameter_error(
        f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {least} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
        "input_tokens",
        least,
    )


def validation_error(errors: list[dict[str, Any]]) -> RequestError:
    """A body that does not fit its schema; `errors` as pydantic lists them, locations within the body."""
    label = "error" if len(errors) == 1 else "errors"
    lines = [f"{len(errors)} validation {label}:"]
    lines += [f"  {_one(error)}" for error in errors[:_MAX_ERRORS]]
    if len(errors) > _MAX_ERRORS:
        lines.append(f"  ...and {len(errors) - _MAX_ERRORS} more {label}")
    return RequestError("\n".join(lines), kind=HTTPStatus.BAD_REQUEST.phrase, param=_location(errors[0]["loc"]))


def json_error(body: bytes) -> RequestError | None:
    """Why `body` is no JSON; None if it is."""
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        context = {"error": error.msg}
        return validation_error(
            [{"type": "json_invalid", "loc": (error.pos,), "msg": "JSON decode error", "input": {}, "ctx": context}]
        )
    except (UnicodeDecodeError, RecursionError):
        return RequestError("There was an error parsing the body", kind="Bad Request")
    return None


def _location(loc: tuple[int | str, ...]) -> str:
    inner = [str(part) for part in loc]
    # pydantic names the branches of a union by their types; they are no part of the body
    names = [part for part in inner if part not in ("str", "int", "float", "bool", "list", "dict") and "[" not in part]
    return ".".join(["body", *names])


def _one(error: dict[str, Any]) -> str:
    shown: dict[str, Any] = {"type": error["type"], "loc": _location(error["loc"]), "msg": error["msg"]}
    shown["input"] = _summary(error.get("input"))
    if error.get("ctx"):
        shown["ctx"] = error["ctx"]
    return str(shown)


def _summary(value: object) -> object:
    if isinstance(value, list | tuple | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = value if isinstance(value, str) else str(value)
    return text[:_MAX_TEXT] + "...[truncated]" if len(text) > _MAX_TEXT else text


__all__ = ["RequestError", "json_error", "model_error", "parameter_error", "too_long_error", "validation_error"]
