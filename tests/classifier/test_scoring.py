from __future__ import annotations

import base64
import json
import math
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classifier import PRECISIONS, ArtefactError, Classifier, Risks, load
from classifier.scoring import Trained, shipped
from tests.classifier.bodies import KEYS, drawn, turned

JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
PART = st.dictionaries(st.sampled_from(["type", "text", "content", "image_url", "output", "role"]), JSON, max_size=3)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls"]), JSON | st.lists(PART, max_size=2), max_size=3
)
BODY = st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(MESSAGE | JSON, max_size=3), max_size=3)

EVERY = [load(name) for name in shipped()]
HARD = (
    "Prove that for every prime p > 3 the number p^2 - 1 is divisible by 24, then implement a function that checks it for "
    "all p < 10^6, and explain why the algorithm's cost is O(n log log n). If a statement is false, which assumption fails?"
)


def said(*turns: str) -> dict[str, object]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[index % 2], "content": text} for index, text in enumerate(turns)]}


def check(risks: Risks) -> None:
    values = [risks.by_precision[name] for name in PRECISIONS]
    assert all(0 <= value <= 1 for value in values)
    assert values == sorted(values)
    assert 0 <= risks.uncertainty <= 1
    assert not {"fp32", "fp16", "bf16"} & set(risks.by_precision)


@pytest.mark.parametrize("first", range(0, 3000, 1000))
def test_any_body_has_risks(first: int) -> None:
    for seed in range(first, first + 1000):
        body = drawn(seed)
        try:
            features = EVERY[0].features(body)
            for classifier in EVERY:
                check(classifier.risk_of(features))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {body!r:.2000}") from error


def test_the_order_of_keys_is_irrelevant(classifier: Trained) -> None:
    for seed in range(600):
        body = drawn(seed)
        assert classifier.risk(body) == classifier.risk(turned(body)) == classifier.risk(body), seed


@given(BODY)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_what_hypothesis_makes_of_a_body_has_risks(classifier: Trained, body: dict[str, Any]) -> None:
    check(classifier.risk(body))


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_model_serves(name: str) -> None:
    classifier = load(name)
    assert isinstance(classifier, Classifier)
    check(classifier.risk(said(HARD)))
    assert classifier.risk(said(HARD)).version.startswith(name)


def test_harder_has_more_risk(classifier: Trained) -> None:
    assert classifier.risk(said(HARD)).by_precision["int4"] > classifier.risk(said("Hello there!")).by_precision["int4"]


@pytest.mark.parametrize("text", ["hi", "Hello!", "thanks a lot", "你好", "hi \n\n"])
def test_a_greeting_has_the_least_risk(classifier: Trained, text: str) -> None:
    risk = classifier.risk(said(text)).by_precision["int4"]
    assert risk <= classifier.thresholds["int4"]
    assert risk <= classifier.risk(said("Name three colours.")).by_precision["int4"]
    assert classifier.risk(said(text + " Prove Fermat's last theorem.")).by_precision["int4"] > risk


def test_many_at_once(classifier: Trained) -> None:
    bodies = [said(HARD), said("hi"), {}]
    assert classifier.risks(bodies) == [classifier.risk(body) for body in bodies]
    assert classifier.risks([]) == []


@pytest.mark.parametrize(
    "suffix", ["好" * 10, "!" * 10, "\n" * 10, " 7" * 10, " Write a short poem about the sea.", " thank you" * 10]
)
def test_a_short_suffix_takes_little_risk_away(classifier: Trained, suffix: str) -> None:
    threshold = classifier.thresholds["int4"]
    assert classifier.risk(said(HARD + suffix)).by_precision["int4"] > threshold


def test_a_schema_has_more_risk_at_four_bits_alone(classifier: Trained) -> None:
    plain = classifier.risk(said("Name and age: Ada, 36.")).by_precision
    schema = classifier.risk(
        {**said("Name and age: Ada, 36."), "response_format": {"type": "json_object"}}
    ).by_precision
    assert schema["int4"] > plain["int4"]
    assert schema["int8"] == plain["int8"]


@pytest.mark.parametrize("follow_up", ["commit it", "继续", "yes", "go on", "ok", "好的"])
def test_case_27_a_short_follow_up_inherits_its_conversations_difficulty(classifier: Trained, follow_up: str) -> None:
    """A short follow-up ('commit it') in a hard conversation is not routed by its own length."""
    hard = classifier.risk(said(HARD)).by_precision["int4"]
    easy = classifier.risk(said("Hello there!")).by_precision["int4"]
    alone = classifier.risk(said(follow_up)).by_precision["int4"]
    after = classifier.risk(said(HARD, "def check(p):\n    return (p * p - 1) % 24 == 0\n", follow_up)).by_precision[
        "int4"
    ]
    assert after > alone
    assert after > easy + 0.7 * (hard - easy)


def test_images_move_neither_cost_nor_the_text_features(classifier: Trained) -> None:
    image = base64.b64encode(random.Random(0).randbytes(3_000_000)).decode()
    text = {"type": "text", "text": HARD}
    plain = {"messages": [{"role": "user", "content": [text]}]}
    with_image = {
        "messages": [
            {
                "role": "user",
                "content": [text, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}],
            }
        ]
    }
    assert classifier.risk(plain).by_precision == classifier.risk(with_image).by_precision
    assert classifier.risk(plain).uncertainty < classifier.risk(with_image).uncertainty
    assert best(lambda: classifier.risk(with_image)) < 3 * best(lambda: classifier.risk(plain))


def best(call: Any, repeats: int = 30) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


ODD = {
    "empty": "",
    "blank": " \n\t" * 500,
    "rtl": "ما هو الفرق بين العدد الأولي والعدد المركب؟ اشرح. " * 20,
    "hebrew": "\u202eמהו ההבדל בין מספר ראשוני לפריק?\u202c" * 20,
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈🔥" * 300,
    "mixed": "Решите уравнение x² = 2 を解いて 请解释 لماذا 🤖 " * 50,
    "thai": "จงอธิบายความแตกต่างระหว่างจำนวนเฉพาะและจำนวนประกอบ" * 20,
    "binary": random.Random(1).randbytes(4000).decode("latin-1"),
    "nul": "\x00" * 5000,
    "surrogates": "\ud83d" * 1000,
    "one word": "a" * 5_000_000,
    "huge": "The quick brown fox jumps over the lazy dog. " * 120_000,
    "huge chinese": "请解释为什么天空是蓝色的。" * 400_000,
    "base64": base64.b64encode(random.Random(2).randbytes(3_000_000)).decode(),
    "digits": "7" * 100_000,
    "combining": "e" + "\u0301" * 50_000,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_texts(classifier: Trained, name: str) -> None:
    body = said(ODD[name])
    check(classifier.risk(body))
    assert classifier.risk(body) == classifier.risk(body)
    assert best(lambda: classifier.risk(body), 5) < 0.02


def test_unlike_the_training_data_is_less_certain(classifier: Trained) -> None:
    known = classifier.risk(
        said("Janet has 3 apples and buys 4 more each day. How many apples does she have after 5 days?")
    )
    for name in ("rtl", "emoji", "binary", "huge"):
        odd = classifier.risk(said(ODD[name]))
        assert odd.uncertainty / odd.by_precision["int4"] > known.uncertainty / known.by_precision["int4"], name


SUFFIXES = ("hello! " * 300, "\nok" * 300, "\n" * 200, " 7" * 300, "=" * 500, " " * 5000, "!" * 2000, " the" * 300)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_appended_noise_does_not_buy_int4(classifier: Trained, suffix: str) -> None:
    threshold = classifier.artefact.content["thresholds"]["recommended"]["int4"]
    assert classifier.risk(said(HARD)).by_precision["int4"] > threshold
    assert classifier.risk(said(HARD + suffix)).by_precision["int4"] > threshold


def test_no_text_leaves_the_bounds(classifier: Trained) -> None:
    calibration = classifier.artefact.calibration
    ends = [
        1 / (1 + math.exp(-(calibration.intercepts[-1] + sign * calibration.slope * calibration.clip)))
        for sign in (-1, 1)
    ]
    for text in (*ODD.values(), *(HARD + suffix for suffix in SUFFIXES), HARD + " Write a short poem." * 20):
        assert ends[0] - 1e-9 <= classifier.risk(said(text)).by_precision["int4"] <= ends[1] + 1e-9


def test_threads_agree(classifier: Trained) -> None:
    bodies = [said(HARD[: 10 + 7 * index]) for index in range(30)]
    expected = [classifier.risk(body) for body in bodies]
    seen: list[list[Risks]] = []

    def work() -> None:
        seen.append([classifier.risk(body) for body in bodies])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [expected] * 8


def test_serving_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys, classifier; classifier.load().risk({'prompt': 'hi'}); "
        "print([m for m in ('numpy', 'sklearn', 'torch', 'typer', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_load_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"unknown model 'nope'; shipped: .*default"):
        load("nope")
    with pytest.raises(ArtefactError, match="cannot be read"):
        load(artefact=tmp_path / "missing.json")
    path = tmp_path / "own.json"
    path.write_text(json.dumps(dict(load("length").artefact.content)))
    assert load(artefact=path).risk(said(HARD)) == load("length").risk(said(HARD))
    assert load("length", path).artefact.kind == "length"
    with pytest.raises(ArtefactError, match="holds a model of kind 'length', the configuration asks for 'random'"):
        load("random", path)
