from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.conversation import view
from classifier.features import Features, extract
from classifier.models import ModelError
from classifier.risks import PRECISIONS
from classifier.segments import VERDICTS, Segments, forced, segment_of


def _features(text: str, **more: object) -> Features:
    return extract(view({"messages": [{"role": "user", "content": text}], **more}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there", "en/general/short/plain"),
        ("中国有多少个省？", "zh/general/short/plain"),
        ("Solve the equation and prove the integral of the polynomial", "en/mathematics/short/plain"),
        ("Напиши мне что-нибудь о погоде", "other/general/short/plain"),
        ("word " * 200, "en/general/medium/plain"),
        ("word " * 4000, "en/general/long/plain"),
        ("", "en/general/short/plain"),
    ],
)
def test_segments_are_read_from_the_features(text: str, expected: str) -> None:
    assert segment_of(_features(text)) == expected


def test_tools_and_schemas_are_a_segment_of_their_own() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert segment_of(_features("Hello", tools=[tool])).endswith("/structured")


@given(st.lists(st.sampled_from(VERDICTS), min_size=len(PRECISIONS), max_size=len(PRECISIONS)))
def test_what_is_proven_keeps_risks_in_order(verdicts: list[str]) -> None:
    row = forced(verdicts)
    # Harmless first, then open, then harmful.
    ranks = [{0.0: 0, None: 1, 1.0: 2}[value] for value in row]
    assert ranks == sorted(ranks)
    for verdict, value in zip(verdicts, row, strict=True):
        if verdict == "inferior":
            assert value == 1.0
    if "inferior" not in verdicts and "non_inferior" in verdicts:
        last = max(at for at, verdict in enumerate(verdicts) if verdict == "non_inferior")
        assert row[: last + 1] == (0.0,) * (last + 1)


def _content(per_prompt: bool = True) -> dict[str, object]:
    undecided = ["undecided"] * 5
    return {
        "per_prompt": per_prompt,
        "overall": [0.1, 0.1, 0.2, 0.2, 0.2],
        "cells": {
            "en/general/short/plain": {"rates": [0.01, 0.01, 0.3, 0.3, 0.4], "verdicts": undecided},
            "zh/general/short/plain": {
                "rates": [0.0, 0.0, 0.5, 0.5, 0.5],
                "verdicts": ["non_inferior", "non_inferior", "inferior", "inferior", "inferior"],
            },
        },
    }


RISKS = dict(zip(PRECISIONS, (0.02, 0.03, 0.1, 0.1, 0.15), strict=True))


def test_proof_overrides_the_prompt() -> None:
    segments = Segments.from_content(_content())
    assert segments.apply(RISKS, _features("你好")) == dict(zip(PRECISIONS, (0, 0, 1, 1, 1), strict=True))
    assert segments.apply(RISKS, _features("Hello")) == RISKS
    assert segments.apply(RISKS, _features("word " * 4000)) == RISKS


def test_a_worthless_prompt_risk_gives_way_to_the_segments_mean() -> None:
    segments = Segments.from_content(_content(per_prompt=False))
    assert list(segments.apply(RISKS, _features("Hello")).values()) == [0.01, 0.01, 0.3, 0.3, 0.4]
    assert list(segments.apply(RISKS, _features("word " * 4000)).values()) == [0.1, 0.1, 0.2, 0.2, 0.2]
    assert list(segments.apply(RISKS, _features("你好")).values()) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cells": []}, "cells"),
        ({"per_prompt": 1}, "per_prompt"),
        ({"overall": [0.2, 0.1, 0.1, 0.1, 0.1]}, "must not fall"),
        ({"overall": [0.2]}, "expected 5"),
        ({"cells": {"x": {"rates": [0, 0, 0, 0, 2], "verdicts": ["undecided"] * 5}}}, "stay in"),
        ({"cells": {"x": {"rates": [0, 0, 0, 0, 0], "verdicts": ["fine"] * 5}}}, "verdicts"),
        ({"cells": {"x": 1}}, "must be an object"),
    ],
)
def test_a_damaged_table_is_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        Segments.from_content({**_content(), **change})
