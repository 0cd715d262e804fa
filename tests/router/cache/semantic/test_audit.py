"""The threshold rises when more of what was checked is wrong than may be, and never falls."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from router.cache.semantic.audit import ENOUGH, STEP, Audit, agree


def answer(text: str | None, arguments: str | None = None) -> bytes:
    calls = [{"id": "x", "function": {"name": "f", "arguments": arguments}}] if arguments is not None else None
    return json.dumps({"choices": [{"message": {"content": text, "tool_calls": calls}}]}).encode()


def test_the_first_wrong_one_is_one_too_many() -> None:
    audit = Audit(0.4, 0.02)
    assert not audit.record(True)
    assert audit.record(False)
    assert audit.threshold == 0.4 + STEP
    assert audit.checked == 0


def test_within_the_bound_nothing_happens() -> None:
    audit = Audit(0.4, 0.1)
    for n in range(ENOUGH * 2):
        audit.record(n % 20 != 0)
    assert audit.threshold == 0.4
    assert (audit.checked, audit.wrong) == (40, 2)


@given(st.lists(st.booleans(), max_size=100), st.floats(0, 1), st.floats(0, 1))
def test_it_never_falls(checks: list[bool], threshold: float, bound: float) -> None:
    audit = Audit(threshold, bound)
    before = threshold
    for agreed in checks:
        raised = audit.record(agreed)
        assert audit.threshold > before if raised else audit.threshold == before
        before = audit.threshold


def test_agreement() -> None:
    assert agree(answer("It is Paris."), answer("It is Paris."))
    assert agree(answer("The capital of France is Paris."), answer("The capital of France is Paris!"))
    assert not agree(answer("It takes 12 minutes."), answer("It takes 13 minutes."))
    assert not agree(answer("Paris"), answer("Lyon"))
    assert agree(answer(None, '{"a":1}'), answer(None, '{"a":1}'))
    assert not agree(answer(None, '{"a":1}'), answer(None, '{"a":2}'))
