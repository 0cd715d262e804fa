"""The hosted sidecar on a real socket, over any provider."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import uvicorn

from backends.hosted.app import HostedApp

Serve = Callable[[HostedApp], Awaitable[str]]


@asynccontextmanager
async def served(app: HostedApp) -> AsyncIterator[str]:
    """The base URL of `app`, until left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, http="httptools"))
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve([listener]))
        try:
            async with asyncio.timeout(60):
                while not server.started:
                    await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await task


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves applications until the test ends."""
    async with AsyncExitStack() as stack:
        yield lambda app: stack.enter_async_context(served(app))
