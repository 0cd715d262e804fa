from __future__ import annotations

from pathlib import Path

import pytest

from router.calibration.collect import full_key, variant_key
from router.calibration.journal import Journal
from router.calibration.prompts import PromptError, parse
from router.calibration.sending import Target
from router.calibration.told import judged, read_feedback

FULL, INT4 = Target("fp16", "fp16", ("http://a",), "g"), Target("int4", "int4", ("http://b",), "g")


def _fill(journal: Journal, texts: dict[str, tuple[str, str]]) -> list[object]:
    prompts = [parse(f'{{"prompt": "{name}"}}', "l") for name in texts]
    for prompt, (full, own) in zip(prompts, texts.values(), strict=True):
        key = full_key(FULL, prompt, 8)
        journal.add({"key": key, "text": full, "ids": [], "logprobs": []})
        journal.add({"key": variant_key(INT4, key), "same": full == own, "text": own})
    return list(prompts)


async def test_each_pair_is_judged_in_both_orders_and_once(tmp_path: Path) -> None:
    asked: list[str] = []

    async def likes_long(question: str) -> str:
        asked.append(question)
        a, b = (question.split(f"Answer {name}:\n")[1].split("\n")[0] for name in "AB")
        return "A." if len(a) > len(b) else "**B**"

    async def likes_first(question: str) -> str:
        return "A"

    texts = {"p": ("long answer", "short"), "q": ("same", "same"), "r": ("x", "xyz")}
    with Journal(tmp_path / "j") as journal:
        prompts = _fill(journal, texts)
        options = {"max_tokens": 8, "concurrency": 2, "progress": lambda *_: None}
        for _ in range(2):
            told = await judged(prompts, FULL, [INT4], journal, ask=likes_long, judge="m", **options)  # type: ignore[arg-type]
            assert [told[p.key, "int4"] for p in prompts] == [1, 0, -1]  # type: ignore[attr-defined]
        assert len(asked) == 4
        # A judge that only looks at the place says nothing.
        told = await judged(prompts, FULL, [INT4], journal, ask=likes_first, judge="n", **options)  # type: ignore[arg-type]
        assert set(told.values()) == {0}


def test_feedback_is_read_and_averaged(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"prompt": "p", "variant": "int4", "lost": 1}\n\n{"prompt": "p", "variant": "int4", "lost": 0}\n')
    assert read_feedback(path) == {(parse('{"prompt": "p"}', "l").key, "int4"): 0.5}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x", "1: not JSON"),
        ('{"prompt": "p", "lost": 1}', "1: variant"),
        ('{"prompt": "p", "variant": "v", "lost": 2}', "1: lost"),
        ('{"variant": "v", "lost": 1}', "1: prompt"),
    ],
)
def test_wrong_feedback_is_told(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(PromptError, match=told):
        read_feedback(path)
    with pytest.raises(PromptError, match="cannot be read"):
        read_feedback(tmp_path / "none")
