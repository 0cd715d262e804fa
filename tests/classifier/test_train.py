from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from classifier import data
from classifier.cli import build_app
from classifier.crossval import run, tables
from classifier.scoring import load
from classifier.train import question_key, training_outcomes

SUBJECTS = ("algebra", "history", "law", "physics", "biology", "chess", "music", "logic")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def question(generator: random.Random, number: int) -> tuple[str, bool]:
    hard = generator.random() < 0.5
    words = "prove integral theorem compute" if hard else "name tell list describe"
    body = " ".join(generator.choices([*words.split(), "the", "of", "a", "number", "sea"], k=generator.randint(8, 40)))
    return f"Question {number}: {body}?\nA. {number}\nB. 2\nAnswer:", hard


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small made-up copy of the public data's layout."""
    root = tmp_path_factory.mktemp("data")
    generator = random.Random(0)
    mmlu, gsm8k, routed, study = [], [], [], []
    for number in range(400):
        prompt, hard = question(generator, number)
        weak = int(generator.random() < (0.4 if hard else 0.9))
        mmlu.append(
            {
                "id": str(number),
                "domain": SUBJECTS[number % 8],
                "prompt": prompt,
                "weak_correct": weak,
                "strong_correct": 1,
            }
        )
    for number in range(400, 600):
        prompt, hard = question(generator, number)
        weak = int(generator.random() < (0.4 if hard else 0.9))
        gsm8k.append(
            {"id": str(number), "domain": "gsm8k", "prompt": prompt, "weak_correct": weak, "strong_correct": 1}
        )
    for number in range(600, 700):
        prompt, hard = question(generator, number)
        scores = dict.fromkeys(data.WEAK, 0.2 if hard else 0.9) | dict.fromkeys(data.STRONG, 0.9)
        routed.append({"prompt": prompt, "task": ("math", "facts")[number % 2], "scores": scores})
    for number in range(120):
        prompt, hard = question(generator, number + (0 if number < 20 else 1000))
        if number < 20:
            prompt = mmlu[number]["prompt"]
        lost = generator.random() < (0.2 if hard else 0.05)
        study.append({"prompt": prompt, "task": "mmlu", "fp16": 1, "q8_0": 1 - (number == 7), "q4_K_M": 1 - lost})
    study.append({"prompt": "", "task": "extraction", "fp16": 1, "q8_0": 1, "q4_K_M": 0})
    plain = [{"prompt": question(generator, 5000 + number)[0]} for number in range(60)]
    chinese = [
        {"prompt": f"请解释第{number}个问题，为什么海是蓝色的？" + "写一首诗。" * (number % 7)} for number in range(60)
    ]
    write(root / "routellm/mmlu.jsonl.gz", mmlu)
    write(root / "routellm/gsm8k.jsonl.gz", gsm8k)
    turns = [
        {"id": str(n), "turns": [question(generator, n)[0], "Why?"], "weak_score": 5 + n % 4, "strong_score": 9}
        for n in range(30)
    ]
    write(
        root / "routellm/mt_bench.jsonl.gz",
        [*turns, {"id": "x", "turns": ["a", "b"], "weak_score": None, "strong_score": None}],
    )
    write(root / "llmrouter/outcomes.jsonl.gz", routed)
    write(root / "precision/llama31_8b_fp16_q8_q4.jsonl.gz", study)
    write(root / "prompts/koala_vicuna.jsonl.gz", plain)
    write(root / "prompts/belle_zh.jsonl.gz", chinese)
    write(root / "prompts/zh_checkable.jsonl.gz", [{"messages": [{"role": "user", "content": "一加一等于几？"}]}])
    write(root / "prompts/gsm8k_train.jsonl.gz", plain)
    return root


@pytest.mark.parametrize("kind", ["blend", "constant", "random"])
def test_train_writes_an_artefact_and_its_card(folder: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "own.json"
    done = CliRunner().invoke(
        build_app(),
        ["train", "--data", str(folder), "--out", str(out), "--kind", kind, "--name", "own", "--date", "2026-01-02"],
    )
    assert done.exit_code == 0, done.output
    classifier = load(artefact=out)
    assert classifier.artefact.version.startswith("own-2026-01-02-")
    assert classifier.artefact.version in done.output
    card = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "What the per-prompt part is worth" in card
    shares = classifier.artefact.content["thresholds"]["by_source"]["koala_vicuna"]
    if kind != "constant":
        assert 0.3 < shares["share_int4"] < 0.95
        assert shares["share_int4"] <= shares["share_int8_or_lower"]
    again = tmp_path / "again.json"
    CliRunner().invoke(
        build_app(),
        ["train", "--data", str(folder), "--out", str(again), "--kind", kind, "--name", "own", "--date", "2026-01-02"],
    )
    assert again.read_text(encoding="utf-8") == out.read_text(encoding="utf-8")


def test_prompts_of_the_calibration_are_not_learnt_from(folder: Path) -> None:
    learnt = training_outcomes(folder)
    assert len(learnt) == 400 + 200 + 100 - 20
    held_out = {question_key(row.prompt) for row in data.precision(folder) if row.prompt}
    assert all(question_key(str(row.request["messages"][0]["content"])) not in held_out for row in learnt)  # type: ignore[index]


def test_the_table_has_every_protocol(folder: Path) -> None:
    rows = list(run(tables(folder), ["linear"]))
    seen = {(row["benchmark"], row["model"], row["protocol"]) for row in rows}
    assert ("mmlu", "linear", "unseen subjects, 8 folds") in seen
    assert ("gsm8k", "linear", "from mmlu") in seen
    assert ("mt_bench", "linear", "all others") in seen
    assert {("mmlu", name, "-") for name in ("random", "oracle", "length")} <= seen
    by_name = {
        row["model"]: row["apgr"]
        for row in rows
        if row["benchmark"] == "mmlu" and row["protocol"] in ("-", "in domain, 5 folds")
    }
    assert by_name["oracle"] > by_name["linear"] > by_name["random"]
    assert all(row["apgr_low"] <= row["apgr"] <= row["apgr_high"] for row in rows if row["model"] != "random")


def test_eval_prints_baselines(folder: Path) -> None:
    done = CliRunner().invoke(build_app(), ["eval", "--data", str(folder)])
    assert done.exit_code == 0, done.output
    for name in (
        "length",
        "random",
        "oracle",
        "mt_bench",
        "area under deferral",
        "calibration error",
        "to the strong model",
    ):
        assert name in done.output


def test_eval_draws_into_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "curve.svg"
    command = ["eval", "--data", str(folder), "--model", "length", "--draw", "mmlu", "--svg", str(out)]
    done = CliRunner().invoke(build_app(), command)
    assert done.exit_code == 0, done.output
    root = ElementTree.fromstring(out.read_text(encoding="utf-8"))
    lines = [node for node in root if node.tag.endswith("polyline")]
    assert len(lines) == 3
    assert "on mmlu" in out.read_text(encoding="utf-8")
    assert CliRunner().invoke(build_app(), [*command[:5], "--draw", "nope"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"), [('{"a": 1}\n[1]\n', ":2: expected an object, found list"), ("nope\n", ":1: not JSON")]
)
def test_bad_data_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(data.DataError, match=message):
        list(data.rows(path))
    with pytest.raises(data.DataError, match="no such file"):
        list(data.rows(tmp_path / "none.jsonl"))
    done = CliRunner().invoke(build_app(), ["train", "--data", str(tmp_path), "--out", str(tmp_path / "a.json")])
    assert done.exit_code == 1
    assert "no such file" in done.output


@pytest.mark.parametrize(("text", "said"), [("hi", "small talk"), ("Prove it. " + "好" * 10, "unlikely form (run)")])
def test_explain_says_what_overrides_the_model(tmp_path: Path, text: str, said: str) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"prompt": text}))
    assert said in CliRunner().invoke(build_app(), ["explain", str(body)]).output


def test_explain_names_features(tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"messages": [{"role": "user", "content": "Prove that 2 + 2 = 4."}], "tools": [{}]}))
    done = CliRunner().invoke(build_app(), ["explain", str(body)])
    assert done.exit_code == 0, done.output
    for word in ("risk int4", "uncertainty", "schema or tools", "log-odds"):
        assert word in done.output
    assert CliRunner().invoke(build_app(), ["explain", str(tmp_path / "none.json")]).exit_code == 1
    body.write_text("[1]")
    assert CliRunner().invoke(build_app(), ["explain", str(body)]).exit_code == 1
