"""Files of metrics that workers share, with their room reserved: a full disk costs figures, never a worker.

prometheus-client maps files with holes into memory. To write into a hole for which the disk has no room ends the process
with SIGBUS, and whatever it served.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import struct

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

_FIRST_BYTES = 1 << 16
_log = logging.getLogger("bitgear")


class ReservedDict(MmapedDict):
    """A dict of doubles in a mapped file without holes; where there is no room, in this process's memory alone."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._shared = True
        try:
            if not read_mode:
                _reserve(filename, _FIRST_BYTES)
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except OSError as error:
            self._fname = filename
            self._positions = {}
            self._used = 8
            # An empty dict, as the file's format has it.
            self._m = mmap.mmap(-1, _FIRST_BYTES)
            self._m[:4] = struct.pack("i", self._used)
            self._capacity = _FIRST_BYTES
            self._leave(error)

    def _init_value(self, key: str) -> None:
        # What a value takes: twice its number, its length, its name and at most 8 bytes beside it.
        while self._used + len(key.encode()) + 32 > self._capacity:
            self._grow(self._capacity * 2)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, capacity: int) -> None:
        if self._shared:
            try:
                _reserve(self._fname, capacity)
                self._m = mmap.mmap(self._f.fileno(), capacity)
                self._capacity = capacity
                return
            except OSError as error:
                self._f.close()
                self._leave(error)
        memory = mmap.mmap(-1, capacity)
        memory[: self._capacity] = self._m[:]
        self._m, self._capacity = memory, capacity

    def _leave(self, error: OSError) -> None:
        """Go on without the file."""
        _log.warning("metrics: %s (%s); what this worker counts from now on is not shown", self._fname, error.strerror)
        self._shared = False
        self._f = open(os.devnull, "rb")  # noqa: SIM115 - what `close` closes


def _reserve(filename: str, size: int) -> None:
    """Make the file at least `size` bytes long, with room on the disk for each. Raises OSError."""
    if os.path.exists(filename):
        _fill(filename, size)
        return
    # Others read whatever ends in .db: an empty one would be an error to them.
    new = f"{filename}.new"
    try:
        _fill(new, size)
        os.replace(new, filename)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def _fill(filename: str, size: int) -> None:
    descriptor = os.open(filename, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        elif os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def reserve_files() -> None:
    """Let prometheus-client, which offers no other way, keep all its values like this from now on."""
    values.MmapedDict = ReservedDict  # type: ignore[attr-defined]


__all__ = ["ReservedDict", "reserve_files"]
