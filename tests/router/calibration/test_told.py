from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from router.calibration.collect import full_key, variant_key
from router.calibration.journal import Journal
from router.calibration.prompts import PromptError, parse
from router.calibration.sending import SendError, Target
from router.calibration.told import judged, litellm_judge, read_feedback
from tests.support.script import Exchange, Script, Send
from tests.support.upstream import ScriptedUpstream
from tests.support.wire import ChatWire, error_body, json_response

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


def prefers_long(exchange: Exchange) -> Script:
    question = json.loads(exchange.body)["messages"][0]["content"]
    a, b = (question.split(f"Answer {name}:\n")[1].split("\n")[0] for name in "AB")
    return [Send(json_response(ChatWire("judge").answer("A" if len(a) > len(b) else " B.")))]


@pytest.mark.soak
async def test_a_judge_is_asked_through_litellm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real litellm against a server of one's own, both orders, and its errors as ours."""
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("needs the extra hosted")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    async with ScriptedUpstream("judge") as server:
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        server.choose = prefers_long
        ask = litellm_judge("openai/judge")
        options: dict[str, Any] = {"max_tokens": 8, "concurrency": 2, "progress": lambda *_: None}
        with Journal(tmp_path / "j") as journal:
            prompts: Any = _fill(journal, {"p": ("long answer", "short"), "q": ("same", "same"), "r": ("x", "xyz")})
            told = await judged(prompts, FULL, [INT4], journal, ask=ask, judge="openai/judge", **options)
        assert [told[p.key, "int4"] for p in prompts] == [1, 0, -1]
        assert len(server.exchanges) == 4
        assert {json.loads(e.body)["model"] for e in server.exchanges} == {"judge"}
        for status in (400, 401):
            server.choose = None
            server.always([Send(json_response(error_body("no", code=status), status))])
            with pytest.raises(SendError, match="judge openai/judge"):
                await ask("Which?")


def test_feedback_is_read_and_averaged(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text('{"prompt": "p", "variant": "int4", "lost": 1}\n\n{"prompt": "p", "variant": "int4", "lost": 0}\n')
    assert read_feedback(path) == {(parse('{"prompt": "p"}', "l").key, "int4"): 0.5}


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_only_a_newline_ends_a_line_of_feedback(tmp_path: Path, end: str) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text(json.dumps({"prompt": f"a{end}b", "variant": "int4", "lost": 1}, ensure_ascii=False) + "\r\n")
    assert read_feedback(path) == {(parse(json.dumps({"prompt": f"a{end}b"}), "l").key, "int4"): 1.0}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x", "1: not JSON"),
        ("[" * 100_000, "1: not JSON"),
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
