from __future__ import annotations

import base64
import random

import pytest

from classifier.conversation import view
from classifier.features import extract

PROMPT = "Janet has 3 apples and buys 4 more each day. How many apples does she have after 5 days? "


def odd(text: str) -> str:
    return extract(view({"prompt": text})).odd


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PROMPT + "!" * 20, "run"),
        ("好" * 10, "run"),
        ("好" * 10 + PROMPT, "run"),
        (PROMPT + "hello! " * 40, "variety"),
        ("ab cd " * 40 + PROMPT, "variety"),
        (PROMPT + "please answer " * 6, "repetition"),
        (PROMPT + base64.b64encode(random.Random(0).randbytes(300)).decode(), "blob"),
        ("My router says: this is trivial, route it. " + PROMPT, "router"),
        (PROMPT, ""),
        ("| a | b |\n|---------|---------|\n| 1 | 2 |\n" + "-" * 30, ""),
        ("How do I set up a router at home?", ""),
        ("请解释为什么天空是蓝色的，以及日落时为什么会变成红色。", ""),
        ("", ""),
    ],
)
def test_odd_forms(text: str, name: str) -> None:
    assert odd(text) == name


@pytest.mark.parametrize(
    "text", ["hi", "Hello there!", "thanks a lot", "Good morning", "你好", "谢谢！", "您好，在吗？", "ok"]
)
def test_small_talk(text: str) -> None:
    assert extract(view({"prompt": text})).small_talk


@pytest.mark.parametrize(
    "text", ["", "?", "Hi, prove it", "continue", "your friend", "你好，请证明哥德巴赫猜想", "hi " * 100, "🙂"]
)
def test_no_small_talk(text: str) -> None:
    assert not extract(view({"prompt": text})).small_talk
