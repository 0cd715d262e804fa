"""The listening sockets that all workers share, opened before anything else is started."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from backends.processes import PlanError

BACKLOG = 4096


@dataclass(frozen=True)
class Address:
    """Where to listen, and the setting that says so."""

    host: str
    port: int
    setting: str
    """Dotted path of the port's setting."""
    flag: str


def listen(address: Address) -> socket.socket:
    """A listening socket. Raises PlanError naming the port and the setting when that is not possible."""
    where = f"{address.host}:{address.port}"
    host_setting = address.setting.replace(".port", ".host")
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise PlanError(f"{host_setting}: {address.host!r} is not an address of this machine ({error})") from None
    family, _, _, _, name = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address.host == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        variable = "BITGEAR_" + address.setting.upper().replace(".", "__")
        other = f"choose another with {address.setting} ({address.flag}, or {variable})"
        if error.errno == errno.EADDRINUSE:
            raise PlanError(f"port {address.port} is in use on {address.host}; {other}") from None
        if error.errno == errno.EACCES:
            raise PlanError(f"no permission to listen on {where}; {other}") from None
        raise PlanError(f"{host_setting}: cannot listen on {where}: {error.strerror}") from None
    return sock


__all__ = ["BACKLOG", "Address", "listen"]
