from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from classifier.conversation import view
from classifier.cues import CHINESE, ENGLISH, KINDS
from classifier.features import NAMES, Features, extract


def of(text: str) -> dict[str, float]:
    return dict(zip(NAMES, extract(view({"prompt": text})).vector, strict=True))


def test_counts() -> None:
    seen = of("Compute 12 + 30.\n```python\nprint(x)\n```")
    assert seen["log_digits"] > 1.6
    assert seen["operator_share"] > 0
    assert seen["fenced_code"] == 1
    assert seen["cue_mathematics"] > 0
    assert seen["cue_code"] > 0
    assert of("Tell me about the sea.")["cue_code"] == 0


def test_the_same_question_in_two_languages_is_close() -> None:
    english = of("Please write a Python function that sorts an array, and explain why the algorithm is correct.")
    chinese = of("请写一个对数组进行排序的 Python 函数，并解释为什么这个算法是正确的。")
    for name in ("log_tokens", "word_length", "distinct_words"):
        assert abs(english[name] - chinese[name]) < 0.35 * english[name], name
    assert chinese["cue_code"] > 0
    assert chinese["cue_reasoning"] > 0
    assert chinese["han_share"] > 0.5


def test_every_kind_has_cues_in_both_languages() -> None:
    for index in range(len(KINDS)):
        assert any(index in kinds for kinds in ENGLISH.values())
        assert any(index in kinds for kinds in CHINESE.values())


def test_history_does_not_count_as_length() -> None:
    turn = {"role": "user", "content": "Tell me about the sea."}
    answer = {"role": "assistant", "content": "It is wide. " * 50}
    once = dict(zip(NAMES, extract(view({"messages": [turn]})).vector, strict=True))
    often = dict(zip(NAMES, extract(view({"messages": [turn, answer] * 20 + [turn]})).vector, strict=True))
    assert abs(once["log_tokens"] - often["log_tokens"]) < 0.05


@given(st.text(max_size=400))
@settings(deadline=None)
def test_any_text_has_finite_features(text: str) -> None:
    seen: Features = extract(view({"prompt": text}))
    assert len(seen.vector) == len(NAMES)
    assert all(value == value and abs(value) < 1e6 for value in seen.vector)


def test_blanks_at_the_ends_do_not_count() -> None:
    assert (
        of("Tell me about the sea.")["newline_share"] == of("Tell me about the sea." + "\n " * 50)["newline_share"] == 0
    )


def test_the_same_han_characters_again_are_not_distinct_words() -> None:
    text = "请解释为什么天空是蓝色的，以及日落时它为什么会变成红色。"
    assert of(text * 20)["distinct_words"] < 0.7 * of(text)["distinct_words"]


def test_lone_surrogates() -> None:
    assert len(of("\ud800 and \udfff")) == len(NAMES)


def test_base64_in_text_is_not_counted() -> None:
    plain = of("Look: ![](data:image/png;base64,) and tell me what is there.")
    heavy = of("Look: ![](data:image/png;base64," + "iVBORw0KGgo9+/" * 100 + ") and tell me what is there.")
    assert abs(plain["digit_share"] - heavy["digit_share"]) < 0.01
