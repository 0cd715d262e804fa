"""Progress as plain lines: a line per change, a sign of life while nothing changes, silence once closed."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from router.cli.display import LiveDisplay, PlainDisplay, make_display


@pytest.fixture
def err(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def test_a_line_per_change_not_per_call(err: io.StringIO) -> None:
    with PlainDisplay() as display:
        for _ in range(5):
            display.update("a", "loading")
        display.update("a", "starting")
        display.done("a", "ready")
        display.say("hello")
    assert [line.split("] ")[1] for line in err.getvalue().splitlines()] == [
        "a: loading", "a: starting", "a: ready", "hello",
    ]  # fmt: skip


def test_a_fraction_gives_a_line_per_tenth(err: io.StringIO) -> None:
    with PlainDisplay() as display:
        for step in range(1001):
            display.update("a", "copying", step / 1000)
    assert len(err.getvalue().splitlines()) == 11


def test_a_sign_of_life_while_nothing_changes(err: io.StringIO) -> None:
    with PlainDisplay(heartbeat_s=0.05) as display:
        display.update("a", "loading")
        end = time.monotonic() + 10
        while err.getvalue().count("a: loading ...") < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        display.done("a", "ready")


def test_nothing_after_close(err: io.StringIO) -> None:
    display = PlainDisplay()
    display.close()
    display.close()
    display.say("late")
    assert err.getvalue() == ""


def test_not_a_terminal_gets_plain_lines(err: io.StringIO) -> None:
    with make_display() as display:
        assert isinstance(display, PlainDisplay)


def test_a_terminal_gets_a_table(err: io.StringIO) -> None:
    with LiveDisplay() as display:
        display.update("a", "loading [b]", 0.5)
        display.done("b", "ready")
        display.say("[not markup]")
    assert "[not markup]" in err.getvalue()
