"""Tests that compare with seconds, on a machine that stands still now and then.

A test marked `timing` relies on this process getting its turn: a limit of 0.3 s passes unnoticed when nothing runs for
half a second. Such a test that fails says nothing if the process was held up meanwhile, and is run again, with
fixtures of its own. Its failure stands when the process was not held up, and after ROUNDS in any case.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import pytest
from _pytest.runner import runtestprotocol

ROUNDS = 6
HELD_UP_S = 0.1
"""A pause longer than this may be what a test failed of."""
_LOOK_S = 0.01


class HeldUp:
    """Use as `with HeldUp() as seen:`; `seen.longest_s` is the longest time in which this process had no turn."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(_LOOK_S):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before - _LOOK_S)
            before = now
        self.longest_s = max(self.longest_s, time.monotonic() - before - _LOOK_S)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test marked `timing`, again where it failed while this process was held up; leave others to pytest."""
    if item.get_closest_marker("timing") is None or not isinstance(item, pytest.Function):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(ROUNDS):
        if number:
            item._initrequest()
        with HeldUp() as seen:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if seen.longest_s < HELD_UP_S or not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
