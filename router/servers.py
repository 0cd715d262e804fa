"""A worker's HTTP servers: how they listen, and how they end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from router.listening import let_in
from router.proxy.listener import Listener

_KEEP_ALIVE_S = 75
"""Longer than common load balancers' idle limit (60 s), so that it is they who close."""
_BACKLOG = 4096


class Server(uvicorn.Server):
    """Leaves signals to the worker, which runs two servers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let in who already waits, accept nothing more, and let what runs end."""
        for sock in sockets or []:
            await let_in(sock)
        await super().shutdown(sockets)


def server_of(app: Any, drain_s: float) -> Server:
    """Return the server of an ASGI application; requests that run at its end have `drain_s` seconds."""
    return Server(
        uvicorn.Config(
            app,
            loop="none",
            http=Listener,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(drain_s)),
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
