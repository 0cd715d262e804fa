"""Progress of things that take longer than two seconds: a live table on a terminal, plain lines everywhere else.

It writes to stderr; what a command gives back goes to stdout.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.table import Table

HEARTBEAT_S = 10.0
"""Between two plain lines about something that takes long, seconds."""
SHARE_S = 2.0
"""Least time between two plain lines that differ only in the share done, seconds."""
_BAR = 20


class Display(Protocol):
    """Rows by name, each with what is going on there now."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, name: str, words: str, fraction: float | None = None) -> None:
        """What `name` does now; `fraction` in [0, 1] where it is known."""

    def done(self, name: str, words: str) -> None:
        """`name` is complete."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def settle(self) -> None:
        """No more progress: only lines that are said."""

    def close(self) -> None:
        """Show nothing more. Harmless a second time."""


class _Closing(ABC):
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class PlainDisplay(_Closing):
    """A line per change, and one now and then while nothing changes."""

    def __init__(self, heartbeat_s: float = HEARTBEAT_S, pause_s: float = SHARE_S) -> None:
        self._began = time.monotonic()
        self._pause_s = pause_s
        self._heartbeat_s = heartbeat_s
        self._rows: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="progress", daemon=True)
        self._thread.start()

    def update(self, name: str, words: str, fraction: float | None = None) -> None:
        """What `name` does now; a line at every change, and for tenths that were done, not too often."""
        text = words if fraction is None else f"{words} {int(fraction * 10) * 10} %"
        with self._lock:
            before, since = self._rows.get(name, ("", 0.0))
            only_share = fraction is not None and before.startswith(f"{words} ")
            if before != text and not (only_share and time.monotonic() - since < self._pause_s):
                self._rows[name] = (text, time.monotonic())
                self._line(f"{name}: {text}")

    def done(self, name: str, words: str) -> None:
        """`name` is complete."""
        with self._lock:
            self._rows.pop(name, None)
            self._line(f"{name}: {words}")

    def say(self, text: str) -> None:
        """One line."""
        with self._lock:
            self._line(text)

    def settle(self) -> None:
        """No more progress."""
        with self._lock:
            self._rows.clear()

    def close(self) -> None:
        """Show nothing more."""
        self.settle()
        self._closed.set()

    def _line(self, text: str) -> None:
        if not self._closed.is_set():
            sys.stderr.write(f"[{time.monotonic() - self._began:5.0f} s] {text}\n")
            sys.stderr.flush()

    def _beat(self) -> None:
        while not self._closed.wait(min(1.0, self._heartbeat_s)):
            now = time.monotonic()
            with self._lock:
                for name, (text, since) in list(self._rows.items()):
                    if now - since >= self._heartbeat_s:
                        self._rows[name] = (text, now)
                        self._line(f"{name}: {text} ...")


class LiveDisplay(_Closing):
    """A table that redraws itself."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        self._began = time.monotonic()
        self._rows: dict[str, tuple[str, float | None, float, bool]] = {}
        self._spinner = Spinner("dots")
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=4, transient=True)
        self._live.start()

    def update(self, name: str, words: str, fraction: float | None = None) -> None:
        """What `name` does now."""
        before = self._rows.get(name)
        self._rows[name] = (words, fraction, before[2] if before else time.monotonic(), False)

    def done(self, name: str, words: str) -> None:
        """`name` is complete."""
        before = self._rows.get(name)
        began = before[2] if before else time.monotonic()
        self._rows[name] = (f"{words} after {time.monotonic() - began:.0f} s", None, began, True)

    def say(self, text: str) -> None:
        """One line above the table."""
        from rich.text import Text

        self._console.print(Text(text))

    def settle(self) -> None:
        """Take the table away."""
        self._live.stop()

    def close(self) -> None:
        """Take the table away."""
        self.settle()

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for name, (words, fraction, since, complete) in list(self._rows.items()):
            mark = Text("✓", style="green") if complete else self._spinner
            bar = "" if fraction is None else f" {'█' * int(fraction * _BAR):░<{_BAR}} {fraction:4.0%}"
            age = "" if complete else f"{time.monotonic() - since:.0f} s"
            table.add_row(mark, Text(name, style="bold"), Text(words + bar), Text(age, style="dim"))
        return table


def make_display() -> Display:
    """The display that fits where stderr goes."""
    return LiveDisplay() if sys.stderr.isatty() else PlainDisplay()


__all__ = ["Display", "LiveDisplay", "PlainDisplay", "make_display"]
