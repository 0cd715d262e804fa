from __future__ import annotations

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.labels import LABELS, Comparison
from classifier.labels.agreement import first_difference
from classifier.labels.checks import CHECKS, choice, fits, numbers
from classifier.labels.divergence import LIMIT, mean_log_ratio


def _right(task: str, text: str, *accepted: str, schema: dict[str, object] | None = None) -> bool:
    return CHECKS[task](text, accepted, schema)


@pytest.mark.parametrize(
    ("task", "text", "accepted", "expected"),
    [
        ("number", "So 3 + 4 = 7.", ("7",), True),
        ("number", "It costs $1,234.50", ("1234.5",), True),
        ("number", "７ apples", ("7",), True),
        ("number", "7 or 8", ("7",), False),
        ("number", "none", ("7",), False),
        ("number", "-3", ("3",), False),
        ("choice", "(B) because", ("B",), True),
        ("choice", "The answer is C.", ("C",), True),
        ("choice", "Bananas", ("B",), False),
        ("choice", "A. B is wrong", ("B",), False),
        ("text", " Paris. ", ("paris",), True),
        ("text", "Paris is the capital", ("Paris",), True),
        ("text", "Parisian", ("Paris",), False),
        ("text", "“３２”", ("32",), True),
        ("text", "", ("x",), False),
        ("code", "```python\nprint(1)\n```", (), True),
        ("code", "print(", (), False),
        ("code", "", (), False),
        ("json", '{"a": 1}', (), True),
        ("json", "{a: 1}", (), False),
    ],
)
def test_right_or_wrong(task: str, text: str, accepted: tuple[str, ...], expected: bool) -> None:
    assert _right(task, text, *accepted) is expected


def test_json_must_fit_its_schema() -> None:
    schema = {
        "type": "object",
        "required": ["n"],
        "properties": {"n": {"type": "integer"}, "t": {"type": "array", "items": {"enum": ["a", "b"]}}},
        "additionalProperties": False,
    }
    assert fits({"n": 1, "t": ["a"]}, schema)
    assert not fits({"t": ["a"]}, schema)
    assert not fits({"n": True}, schema)
    assert not fits({"n": 1, "t": ["c"]}, schema)
    assert not fits({"n": 1, "x": 0}, schema)
    assert _right("json", '```json\n{"n": 2}\n```', schema=schema)
    assert not _right("json", "[]", schema=schema)


@given(st.text())
def test_checks_take_any_text(text: str) -> None:
    for check in CHECKS.values():
        assert check(text, ("1",), {"type": "object"}) in (True, False)
    numbers(text)
    choice(text)


def test_divergence_is_the_mean_log_ratio() -> None:
    pair = Comparison("x", "x", full_logprobs=(-0.5, -1.0), logprobs=(-0.7, -1.4))
    assert mean_log_ratio(pair) == pytest.approx(0.3)
    found = LABELS["divergence"](pair)
    assert found is not None
    assert found.worse
    assert found.quality == pytest.approx(exp(-0.3))
    assert found.loss == pytest.approx(1 - exp(-0.3))


def test_divergence_needs_scores_of_the_same_tokens() -> None:
    assert LABELS["divergence"](Comparison("x", "x")) is None
    assert LABELS["divergence"](Comparison("x", "x", full_logprobs=(-1.0,), logprobs=(-1.0, -2.0))) is None


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=40))
def test_the_same_scores_do_not_diverge(scores: list[float]) -> None:
    found = LABELS["divergence"](Comparison("x", "x", full_logprobs=scores, logprobs=scores))
    assert found is not None
    assert (found.loss, found.worse, found.target) == (0, False, 0)


def test_a_likelier_answer_is_no_loss() -> None:
    found = LABELS["divergence"](Comparison("x", "x", full_logprobs=(log(0.5),), logprobs=(log(0.9),)))
    assert found is not None
    assert found.loss == 0
    assert found.target < -LIMIT


@pytest.mark.parametrize(
    ("task", "full", "own", "same"),
    [
        ("open", "Hello  World", "hello world", True),
        ("open", "Hello", "Hello!", False),
        ("number", "The sum is 7", "7", True),
        ("number", "7", "8", False),
        ("choice", "B", "Answer: B", True),
        ("choice", "B", "C", False),
        ("choice", "none", "nothing", False),
    ],
)
def test_agreement(task: str, full: str, own: str, same: bool) -> None:
    found = LABELS["agreement"](Comparison(full, own, task=task))
    assert found is not None
    assert (found.worse, found.loss) == (not same, float(not same))


def test_answers_that_part_early_weigh_more() -> None:
    early = Comparison("a", "b", ranks=(2, 1, 1, 1))
    late = Comparison("a", "b", ranks=(1, 1, 1, 2))
    assert (first_difference(early), first_difference(late), first_difference(Comparison("a", "b"))) == (0, 3, None)
    first, second = LABELS["agreement"](early), LABELS["agreement"](late)
    assert first is not None
    assert second is not None
    assert first.target > second.target > 0


def test_task_counts_losses_and_wins() -> None:
    lost = LABELS["task"](Comparison("7", "8", task="number", accepted=("7",)))
    won = LABELS["task"](Comparison("8", "7", task="number", accepted=("7",)))
    assert lost is not None
    assert won is not None
    assert (lost.worse, lost.loss, won.worse, won.loss) == (True, 1, False, -1)
    assert LABELS["task"](Comparison("7", "8", task="open")) is None
    assert LABELS["task"](Comparison("A", "B", task="choice")) is None


def test_what_is_told_stands() -> None:
    assert LABELS["judge"](Comparison("a", "b")) is None
    judged = LABELS["judge"](Comparison("a", "b", judged=1.0))
    assert judged is not None
    assert judged.worse
    said = LABELS["feedback"](Comparison("a", "b", feedback=-0.5))
    assert said is not None
    assert not said.worse
    assert said.quality == 1.5
