"""Errors of the admin API: one shape, with the fields at fault."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException

from router.config.problems import masked
from router.control.apply import BadDocument
from router.control.store import UnreadableDocument

_log = logging.getLogger("bitgear")
_LONGEST = 2000
"""Characters of an error's message."""
_LONGEST_FIELD = 500
"""Characters of a problem's field, and of what is said about it."""
_MOST = 100
"""Problems that are told."""


class Problem(Exception):  # noqa: N818 - what is told, not what broke
    """An error for the operator."""

    def __init__(self, status: int, message: str, problems: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.problems = problems or []


def install(app: FastAPI) -> None:
    """Answer every error in the same shape."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> JSONResponse:
        return answer(error.status, error.message, error.problems)

    @app.exception_handler(BadDocument)
    async def bad_document(request: Request, error: BadDocument) -> JSONResponse:
        return answer(422, str(error), [m._asdict() for m in error.mistakes])

    @app.exception_handler(UnreadableDocument)
    async def unreadable(request: Request, error: UnreadableDocument) -> JSONResponse:
        return answer(409, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [{"field": _field(e["loc"]), "message": str(e["msg"])} for e in error.errors()]
        return answer(422, "; ".join(f"{p['field']}: {p['message']}" for p in found), found)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RedisError)
    @app.exception_handler(OSError)
    async def redis(request: Request, error: Exception) -> JSONResponse:
        return answer(503, f"Redis: {masked(str(error)) or type(error).__name__}")

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        _log.error("admin request failed: %s %s", request.method, request.url.path, exc_info=error)
        return answer(500, "Bitgear failed on this request; its log says why.")


def answer(
    status: int, message: str, problems: list[dict[str, str]] | None = None, headers: Any = None
) -> JSONResponse:
    """Return the error's response; what it quotes of a request is cut, however long that was."""
    rows = [{name: _cut(text, _LONGEST_FIELD) for name, text in row.items()} for row in (problems or [])[:_MOST]]
    body = {"error": {"message": _cut(message, _LONGEST), "problems": rows}}
    return JSONResponse(body, status, headers)


def _field(place: Sequence[object]) -> str:
    """Return the body's field at fault; pydantic's mark for a wrong key, `[key]`, says nothing to an operator."""
    return ".".join(str(p) for p in place[1:] if p != "[key]")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
