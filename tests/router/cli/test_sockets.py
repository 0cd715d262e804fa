"""Listening: shared by workers; a mistake names the port and the setting."""

from __future__ import annotations

import socket

import pytest

from backends.processes import PlanError
from router.cli.sockets import Address, listen


def address(host: str, port: int) -> Address:
    return Address(host, port, "server.port", "--port")


def test_listens() -> None:
    with listen(address("127.0.0.1", 0)) as sock, socket.create_connection(sock.getsockname()):
        pass


def test_a_port_in_use_names_port_and_setting() -> None:
    with listen(address("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(
            PlanError, match=rf"port {port} is in use.*server\.port \(--port, or BITGEAR_SERVER__PORT\)"
        ):
            listen(address("127.0.0.1", port))


def test_an_address_of_another_machine_names_the_setting() -> None:
    with pytest.raises(PlanError, match=r"server\.host"):
        listen(address("192.0.2.1", 0))
    with pytest.raises(PlanError, match=r"server\.host"):
        listen(address("no such host", 0))


def test_ipv6_where_there_is_any() -> None:
    try:
        sock = listen(address("::1", 0))
    except PlanError:
        pytest.skip("no IPv6 here")
    with sock, socket.create_connection(("::1", sock.getsockname()[1])):
        pass
