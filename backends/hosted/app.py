"""OpenAI's surface over one hosted model, as a pure ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any

import orjson

from backends.hosted.errors import HostedError, error_of
from backends.hosted.provider import Provider

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_MAX_BODY = 64 * 2**20
_log = logging.getLogger("bitgear.hosted")


class HostedApp:
    """Answers for one group; `aliases` are further names under which clients may ask."""

    def __init__(
        self,
        provider: Provider,
        *,
        model: str,
        aliases: tuple[str, ...] = (),
        timeout_s: float = 120.0,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._provider = provider
        self._names = (model, *aliases)
        self._timeout_s = timeout_s
        self._secrets = secrets
        self._started = int(time.time())
        self._posts: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "/v1/chat/completions": provider.chat,
            "/v1/completions": provider.text,
            "/v1/embeddings": provider.embed,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        call = self._posts.get(path)
        if call is not None and method == "POST":
            await self._post(path, call, receive, send)
        elif path == "/v1/models" and method == "GET":
            await _send(send, 200, orjson.dumps(self._models()))
        elif path in ("/health", "/ping") and method == "GET":
            await _send(send, 200, b"")
        elif call is not None or path in ("/v1/models", "/health", "/ping"):
            await _send(send, 405, b'{"detail":"Method Not Allowed"}')
        else:
            await _send(send, 404, b'{"detail":"Not Found"}')

    async def _post(
        self, path: str, call: Callable[[dict[str, Any]], Awaitable[Any]], receive: Receive, send: Send
    ) -> None:
        body = await _body(receive)
        if body is None:
            return
        if len(body) > _MAX_BODY:
            too_large = HostedError(413, f"The body is larger than {_MAX_BODY} bytes")
            await _send(send, too_large.status, too_large.body())
            return
        answering = asyncio.ensure_future(self._answer(path, call, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # cancelling closes the provider's connection at once
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(
        self, path: str, call: Callable[[dict[str, Any]], Awaitable[Any]], body: bytes, send: Send
    ) -> None:
        started = False
        try:
            request, model = self._request(body)
            async with asyncio.timeout(self._timeout_s):
                answer = await call(request)
                if not hasattr(answer, "__aiter__"):
                    await _send(send, 200, orjson.dumps({**answer, "model": model}))
                    return
                usage = bool((request.get("stream_options") or {}).get("include_usage"))
                async with aclosing(_events(answer, model, usage)) as events:
                    # nothing is sent before the provider sent something: until then its failure has a status
                    first = await anext(events, b"")
                    started = True
                    await _start(send)
                    await _write(send, first)
                    async for event in events:
                        await _write(send, event)
                await _write(send, b"data: [DONE]\n\n", more=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            failure = error if isinstance(error, HostedError) else error_of(error, self._secrets)
            # neither the message nor a traceback: either may quote the request
            _log.warning("%s failed with %s: status %d", path, type(error).__name__, failure.status)
            if started:
                await _write(send, failure.event(), more=False)
            else:
                headers = [] if failure.retry_after is None else [(b"retry-after", failure.retry_after.encode())]
                await _send(send, failure.status, failure.body(), headers)

    def _request(self, body: bytes) -> tuple[dict[str, Any], str]:
        """The request and the name under which to answer. Raises HostedError."""
        try:
            request = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise HostedError(400, f"The body is no JSON: {error}") from None
        if not isinstance(request, dict):
            raise HostedError(400, "The body must be a JSON object")
        model = request.get("model") or self._names[0]
        if model not in self._names:
            known = ", ".join(self._names)
            raise HostedError(404, f"The model `{model}` does not exist. Valid aliases: {known}.", "model")
        return request, model

    def _models(self) -> dict[str, Any]:
        length = self._provider.max_model_len()
        return {
            "object": "list",
            "data": [
                {
                    "id": name,
                    "object": "model",
                    "created": self._started,
                    "owned_by": "litellm",
                    **({} if length is None else {"max_model_len": length}),
                }
                for name in self._names
            ],
        }


async def _events(chunks: AsyncIterator[dict[str, Any]], model: str, usage: bool) -> AsyncGenerator[bytes, None]:
    """Chunks as events under the group's name; usage comes last, alone, and only where it was asked for."""
    total: dict[str, Any] | None = None
    base: dict[str, Any] = {}
    try:
        async for chunk in chunks:
            chunk["model"] = model
            base = {name: chunk[name] for name in ("id", "object", "created", "model") if name in chunk}
            total = chunk.pop("usage", None) or total
            if chunk.get("choices"):
                yield b"data: %b\n\n" % orjson.dumps(_complete(chunk))
        if usage and total is not None:
            yield b"data: %b\n\n" % orjson.dumps({**base, "choices": [], "usage": total})
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def _complete(chunk: dict[str, Any]) -> dict[str, Any]:
    """The fields that clients rely on even where they are null."""
    for choice in chunk["choices"]:
        choice.setdefault("finish_reason", None)
        if chunk.get("object") == "text_completion":
            choice.setdefault("text", "")
        else:
            choice.setdefault("delta", {})
    return chunk


async def _body(receive: Receive) -> bytes | None:
    """The request's body, or its beginning if it is too large to take; None if the client left."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _MAX_BODY or not message.get("more_body"):
            return b"".join(parts)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _write(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    lines = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


__all__ = ["HostedApp"]
