"""Progress as plain lines: a line per change, a sign of life while nothing changes, silence once closed."""

from __future__ import annotations

import time

import pytest

from router.cli.display import LiveDisplay, PlainDisplay, make_display


def test_a_line_per_change_not_per_call(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay() as display:
        for _ in range(5):
            display.update("a", "loading")
        display.update("a", "starting")
        display.done("a", "ready")
        display.say("hello")
    assert [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "a: loading", "a: starting", "a: ready", "hello",
    ]  # fmt: skip


def test_a_fraction_gives_a_line_per_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay(pause_s=0) as display:
        for step in range(1001):
            display.update("a", "copying", step / 1000)
    assert len(capsys.readouterr().err.splitlines()) == 11


def test_fractions_that_pass_fast_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay(pause_s=1000) as display:
        for step in range(1001):
            display.update("a", "copying", step / 1000)
        display.update("a", "writing", 0.1)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_sign_of_life_while_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay(heartbeat_s=0.05) as display:
        display.update("a", "loading")
        end = time.monotonic() + 10
        seen = ""
        while seen.count("a: loading ...") < 2:
            seen += capsys.readouterr().err
            assert time.monotonic() < end
            time.sleep(0.01)
        display.done("a", "ready")


def test_nothing_after_close(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    display.close()
    display.close()
    display.say("late")
    assert capsys.readouterr().err == ""


def test_not_a_terminal_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with make_display() as display:
        assert isinstance(display, PlainDisplay)


def test_a_terminal_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveDisplay() as display:
        display.update("a", "loading [b]", 0.5)
        display.done("b", "ready")
        display.say("[not markup]")
    assert "[not markup]" in capsys.readouterr().err
