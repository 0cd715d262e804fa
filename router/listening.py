"""The end of a listening socket: nothing more is let in, and whoever is in has not come in vain.

Closing a listening socket resets every connection that the kernel has set up and nobody has accepted yet. So first
new ones are kept out, then what waits is accepted, and only then is it closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import select
import socket
import sys
import time

_SO_ATTACH_FILTER = 26
_DROP_S = 1.0
"""Longest time in which what waits is accepted, seconds."""
_POLL_S = 0.005


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def keep_out(sock: socket.socket) -> bool:
    """Let no more connections begin on a listening socket, in whatever process holds it too.

    A client that tries meanwhile asks again by itself after a second, and is refused once the socket is closed. False
    where the system cannot do that (it is Linux's packet filter): then a connection may still slip in and be cut.
    """
    if sys.platform != "linux" or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    # "Return 0": of each packet nothing is taken.
    program = _Program(1, ctypes.pointer(_Instruction(0x06, 0, 0, 0)))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
    except OSError:
        return False
    return True


def waits(sock: socket.socket) -> bool:
    """Return whether a connection (or, on any other socket, data) is there to be taken."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


async def let_in(sock: socket.socket) -> None:
    """Return when the running loop, which accepts on the socket, has accepted all that waited; within a second."""
    end = time.monotonic() + _DROP_S
    await asyncio.sleep(_POLL_S)
    while waits(sock) and time.monotonic() < end:  # noqa: ASYNC110 - the kernel tells of no such moment
        await asyncio.sleep(_POLL_S)


__all__ = ["keep_out", "let_in", "waits"]
