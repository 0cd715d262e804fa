"""A worker's HTTP servers: how they listen, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn

from router.config.schema import ServerConfig
from router.listening import let_in
from router.proxy.listener import Limits, Listener

_BACKLOG = 4096


class Server(uvicorn.Server):
    """Leaves signals to the worker, which runs two servers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    def end(self) -> None:
        """Take no more requests and let the running ones finish; called again: end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        """Wait for `end`. The inherited one looks ten times a second."""
        await self.on_tick(0)
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let in who already waits, accept nothing more, and let what runs end."""
        for sock in sockets or []:
            await let_in(sock)
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        await asyncio.sleep(0)
        # The inherited one waits a tenth of a second even for nobody.
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


def server_of(app: Any, config: ServerConfig) -> Server:
    """Return the server of an ASGI application, which waits for clients, and for running requests at its end, as configured."""
    return Server(
        uvicorn.Config(
            app,
            loop="none",
            http=partial(Listener, limits=Limits(config.head_s, config.send_s)),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=config.keep_alive_s,
            timeout_graceful_shutdown=max(1, round(config.drain_s)),
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(_BACKLOG)
    return sock


__all__ = ["Server", "listen", "server_of"]
