"""Runs one server and lets nothing of it outlive its parent: the small process between a supervisor and an engine.

Run by its file's path (standard library alone, so that any interpreter starts it in milliseconds):

    python guard.py --parent PID --fd N --grace S [--log FILE --log-bytes N --log-files N] -- COMMAND...

The parent holds the other end of the pipe N. When it closes, by SIGKILL too, or on SIGTERM, the guard ends the whole
tree: SIGTERM to the command, SIGTERM to what it leaves behind, after the grace time SIGKILL to every descendant. As a
child subreaper it also gets those that daemonize. When the command ends by itself, what is left of it is ended likewise.
Exit code: the command's, or 128 plus the signal that ended it; 127 if it could not be started.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import selectors
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_READS = 32
"""Reads of 64 KiB in a row: more than a pipe holds."""
_POLL_S = 0.05
"""Between two looks at what is left of a tree that is being ended."""
START_MARK = "=== started "
"""Begins the line that the log has before each start's output."""
_REST_GRACE_S = 5.0
"""For descendants that their parent left behind."""


def die_with_parent(parent: int, number: int) -> None:
    """Ask the kernel for signal `number` when the thread that started this process ends (Linux; elsewhere nothing).

    `parent` is the parent's process id: if that is gone already, the signal comes at once.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def lives(pid: int) -> bool:
    """Return whether a process with this id exists, whosever it is."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def descendants(root: int) -> list[int]:
    """Living descendants of a process, children before grandchildren.

    Zombies don't count, but what is below them does: a process whose first thread has ended looks like one.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for pid, state, parent, _ in process_table():
        children.setdefault(parent, []).append((pid, state))
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += [pid for pid, state in below if state != "Z"]
        queue += [pid for pid, _ in below]
    return found


def process_table() -> list[tuple[int, str, int, int]]:
    """(process, state letter, parent, session) of every process, from /proc (empty where there is none)."""
    table = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(errors="replace")
        except OSError:
            continue
        # The name in parentheses may hold spaces and parentheses itself.
        fields = text[text.rindex(")") + 2 :].split()
        table.append((int(folder.name), fields[0], int(fields[1]), int(fields[3])))
    return table


def send(pids: Sequence[int], number: int) -> None:
    """Signal processes; those that are gone already, or not ours any more, are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


class Log:
    """A log file that is rotated by size: `x.log`, `x.log.1`, ..., at most `files` of them.

    A disk that refuses a write loses lines, never the server.
    """

    def __init__(self, path: Path, limit: int, files: int) -> None:
        self._path, self._limit, self._files = path, limit, max(1, files)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    def write(self, data: bytes) -> None:
        """Append; a file that would grow over the limit is put away first."""
        try:
            if self._size and self._size + len(data) > self._limit:
                self._rotate()
            os.write(self._fd, data)
        except OSError:
            return
        self._size += len(data)

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        os.close(self._fd)
        for number in range(self._files - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)
        if self._files == 1:
            self._path.unlink(missing_ok=True)
        self._open()


class Guard:
    """One guarded command."""

    def __init__(self, argv: Sequence[str], *, parent_fd: int | None, grace_s: float, log: Log | None) -> None:
        self._argv, self._grace, self._log = list(argv), grace_s, log
        self._selector = selectors.DefaultSelector()
        self._status: int | None = None
        self._ends = False
        self._hurry = False
        self._output: int | None = None
        wake_read, self._wake_write = os.pipe()
        for fd in (wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked_to_end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(wake_read, selectors.EVENT_READ, "wake")
        if parent_fd is not None:
            os.set_inheritable(parent_fd, False)
            self._selector.register(parent_fd, selectors.EVENT_READ, "parent")

    def run(self) -> int:
        """Start the command, wait for its end or for ours; the exit code comes back."""
        if sys.platform == "linux":
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if self._log is not None:
            self._log.write(f"{START_MARK}{time.strftime('%Y-%m-%d %H:%M:%S %z')}: {shlex.join(self._argv)}\n".encode())
        self._root = self._start()
        while self._status is None and not self._ends:
            self._step(None)
        self._end_tree()
        self._pump()
        status = self._status if self._status is not None else 0
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def _asked_to_end(self, *_: object) -> None:
        self._hurry = self._ends
        self._ends = True

    def _start(self) -> int:
        read, write = os.pipe() if self._log else (None, None)
        guard = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(guard, write)
        if read is not None and write is not None:
            os.close(write)
            os.set_blocking(read, False)
            self._output = read
            self._selector.register(read, selectors.EVENT_READ, "output")
        return pid

    def _become(self, guard: int, output: int | None) -> None:
        """In the child: take the command's place, or exit with 127."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            # Should the guard itself be killed, at least the command goes with it.
            die_with_parent(guard, signal.SIGKILL)
            if output is not None:
                os.dup2(output, 1)
                os.dup2(output, 2)
            os.execvp(self._argv[0], self._argv)  # noqa: S606
        except OSError as error:
            os.write(2, f"cannot start {self._argv[0]}: {error}\n".encode())
        finally:
            os._exit(127)

    def _step(self, timeout: float | None) -> None:
        """Wait for one event and deal with it."""
        for key, _ in self._selector.select(timeout):
            if key.data == "output":
                self._pump()
            elif key.data == "wake":
                _drain(key.fd)
            elif not os.read(key.fd, 4096):
                # The parent's end is closed: it is gone.
                self._selector.unregister(key.fd)
                self._ends = True
        self._reap()

    def _reap(self) -> bool:
        """Take leave of children that ended; True while there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._root:
                self._status = status

    def _end_tree(self) -> None:
        """SIGTERM, grace, SIGKILL, until no child is left (orphans become ours), the command before what it leaves."""
        deadline = time.monotonic() + self._grace
        rest_told = False
        if self._status is None:
            send([self._root], signal.SIGTERM)
        while self._reap():
            left = descendants(os.getpid())
            if self._status is not None and not rest_told:
                rest_told = True
                deadline = min(deadline, time.monotonic() + _REST_GRACE_S)
                send(left, signal.SIGTERM)
            if self._hurry or time.monotonic() >= deadline:
                send(left, signal.SIGKILL)
            self._step(_POLL_S)

    def _pump(self) -> None:
        """Move what the command has written into its log; not endlessly, or a talkative command could not be ended."""
        if self._output is None or self._log is None:
            return
        for _ in range(_READS):
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            if not data:
                self._selector.unregister(self._output)
                os.close(self._output)
                self._output = None
                return
            self._log.write(data)


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        return


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run; the exit code comes back."""
    parser = argparse.ArgumentParser(description="Run a command and end all of it with its parent.")
    parser.add_argument("--parent", type=int, default=0, help="process id of the parent")
    parser.add_argument("--fd", type=int, help="reading end of a pipe whose other end the parent holds")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--log", type=Path, help="file for the command's output")
    parser.add_argument("--log-bytes", type=int, default=16 << 20)
    parser.add_argument("--log-files", type=int, default=3)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args(argv)
    log = Log(arguments.log, arguments.log_bytes, arguments.log_files) if arguments.log else None
    guard = Guard(arguments.command, parent_fd=arguments.fd, grace_s=arguments.grace, log=log)
    if arguments.parent:
        # After the handlers are in place: the signal must end the tree, not just this process.
        die_with_parent(arguments.parent, signal.SIGTERM)
    return guard.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
