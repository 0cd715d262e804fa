from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulator import text, tokens
from backends.simulator.answers import Answer, Rules, logprobs, make, make_call


def endless() -> list[str]:
    return text_tokens(400)


def text_tokens(length: int) -> list[str]:
    source = text.answer(7, "int4", chinese=False)
    return [next(source) for _ in range(length)]


def test_an_answer_ends_by_itself_with_a_token_that_has_no_text() -> None:
    answer = make(endless(), 10, Rules(max_tokens=100), 1)
    assert len(answer.raw) == 11
    assert answer.raw[-1] == ""
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)
    assert answer.text.startswith("[simulated int4]")


def test_max_tokens_cuts_it() -> None:
    answer = make(endless(), 10, Rules(max_tokens=10), 1)
    assert len(answer.raw) == 10
    assert answer.finish_reason == "length"


def test_min_tokens_and_ignore_eos_lengthen_it() -> None:
    assert len(make(endless(), 10, Rules(max_tokens=100, min_tokens=30), 1).raw) == 31
    ignored = make(endless(), 10, Rules(max_tokens=100, ignore_eos=True), 1)
    assert len(ignored.raw) == 100
    assert ignored.finish_reason == "length"


def test_a_finite_source_ends_whatever_ignore_eos_says() -> None:
    answer = make(["a", "b"], None, Rules(max_tokens=100, ignore_eos=True, min_tokens=50), 1)
    assert (answer.raw, answer.finish_reason) == (("a", "b", ""), "stop")


def test_a_stop_string_over_several_tokens_is_hidden_and_named() -> None:
    answer = make(["one", " two", " thr", "ee", " four"], 5, Rules(max_tokens=9, stops=("two three",)), 1)
    assert answer.text == "one "
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "two three")
    assert len(answer.raw) == 4


def test_a_stop_string_may_be_kept_in_the_text() -> None:
    answer = make(["one", " two", " x"], 3, Rules(max_tokens=9, stops=("two",), include_stop=True), 1)
    assert answer.text == "one two"


def test_a_stop_string_counts_only_after_min_tokens() -> None:
    answer = make(["a", "b", "a", "b"], 4, Rules(max_tokens=9, min_tokens=2, stops=("b",)), 1)
    assert answer.text == "aba"


def test_a_stop_token_ends_it() -> None:
    answer = make(["a", "b", "c"], 3, Rules(max_tokens=9, stop_token_ids=frozenset({tokens.number("b")})), 1)
    assert (answer.text, answer.stop_reason) == ("a", tokens.number("b"))


@given(
    source=st.lists(st.text("abc ", min_size=1, max_size=3), min_size=1, max_size=30),
    stops=st.lists(st.text("abc ", min_size=1, max_size=4), max_size=3),
    include=st.booleans(),
    most=st.integers(1, 40),
)
def test_what_is_shown_is_the_text_before_the_first_stop(
    source: list[str], stops: list[str], include: bool, most: int
) -> None:
    answer = make(source, len(source), Rules(most, stops=tuple(stops), include_stop=include), 1)
    whole = "".join(source[:most])
    assert len(answer.raw) == len(answer.visible) <= most
    assert whole.startswith(answer.text)
    assert answer.finish_reason in ("stop", "length")
    if not include and isinstance(answer.stop_reason, str):
        # Of two stops within one token vLLM takes the one listed first, not the one that stands first.
        assert answer.stop_reason not in answer.text
    if not any(stop in whole for stop in stops):
        assert answer.text == whole
        assert answer.stop_reason is None


def test_a_call_shows_its_arguments_after_its_markup() -> None:
    answer = make_call("f", '{"a": 1}', "id", Rules(max_tokens=50), 1)
    assert answer.text == '{"a": 1}'
    assert answer.visible[: answer.tool_at + 1] == ("",) * (answer.tool_at + 1)
    assert (answer.finish_reason, answer.tool) == ("stop", "f")
    cut = make_call("f", '{"a": 1}', "id", Rules(max_tokens=5), 1)
    assert (len(cut.raw), cut.finish_reason) == (5, "length")


@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_logprobs_are_a_ranking(top: int) -> None:
    own, ranked = logprobs(3, 0, " the", top)
    assert own.logprob <= 0
    assert len(ranked) == top
    assert [item.logprob for item in ranked] == sorted((item.logprob for item in ranked), reverse=True)
    assert len({item.token for item in ranked}) == top
    assert logprobs(3, 0, " the", top) == (own, ranked)


def test_answers_depend_on_every_part_of_the_seed() -> None:
    seeds = {text.seed_of(*parts) for parts in [(0, "int4", "a"), (1, "int4", "a"), (0, "int8", "a"), (0, "int4", "b")]}
    assert len(seeds) == 4
    assert text.seed_of("ab", "c") != text.seed_of("a", "bc")


def test_chinese_is_answered_in_chinese() -> None:
    assert text.is_chinese("请问今天天气怎么样?")
    assert not text.is_chinese("how are you")
    assert not text.is_chinese("")
    source = text.answer(1, "fp16", chinese=True)
    assert any("\u4e00" <= next(source) <= "\u9fff" for _ in range(20))


def test_the_mean_length_is_the_one_asked_for() -> None:
    lengths = [text.natural_length(text.seed_of(i), 64) for i in range(2000)]
    assert 60 < sum(lengths) / len(lengths) < 68
    assert min(lengths) >= 1


def test_an_answers_tokens_are_those_of_its_text() -> None:
    for seed, chinese in zip(count(), (False, True), strict=False):
        source = text.answer(seed, "int8", chinese=chinese)
        made = [next(source) for _ in range(200)]
        assert tokens.pieces("".join(made)) == made


def test_an_answer_is_a_value() -> None:
    assert Answer(("a",), ("a",), "stop").text == "a"
