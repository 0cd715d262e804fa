"""How much a request of the admin API may bring. Pure ASGI, inside the guard: whoever may not write brings nothing."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException

from router.admin.problems import answer

MOST = 32 * 2**20
"""Bytes of a body: the largest artefact, written with spaces."""
_TOLD = f"the body is larger than {MOST >> 20} MiB"


class Limit:
    """Answers 413 to a body above `MOST` bytes, before it is read where its length is told.

    What comes after that is read and thrown away: a connection cut meanwhile would lose the answer.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if told.isdigit() and int(told.lstrip(b"0") or b"0") > MOST:
            await answer(413, _TOLD)(scope, receive, send)
            return
        came = 0

        async def counted() -> Any:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > MOST:
                raise HTTPException(413, _TOLD)
            return message

        await self._app(scope, counted, send)


__all__ = ["MOST", "Limit"]
