"""Phases of a vLLM start, from the end of its log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.cli.phases import phase_words


def test_other_kinds_have_the_supervisors_phase() -> None:
    assert phase_words("simulator", "starting", "anything") == "starting"


def test_no_log_yet() -> None:
    assert phase_words("vllm", "starting", "") == "starting"


def test_a_later_phase_is_the_supervisors() -> None:
    assert phase_words("vllm", "ready", "Application startup complete") == "ready"


@given(st.text())
def test_any_log_gives_one_short_line(tail: str) -> None:
    words = phase_words("vllm", "starting", tail)
    assert words
    assert len(words) < 200
    assert "\n" not in words
