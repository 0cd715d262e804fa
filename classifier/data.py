"""Readers of the public data that training and evaluation use, and the splits they must respect.

Files are JSON lines, gzipped or not, under `routellm/`, `llmrouter/`, `precision/` and `prompts/` of one folder; each reader
names the file and the fields it needs.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STRONG = ("llama-3.1-nemotron-51b-instruct", "llama-3.3-nemotron-super-49b-v1")
"""The strong models of `llmrouter/outcomes`."""
WEAK = ("qwen2.5-7b-instruct", "mistral-7b-instruct-v0.3", "llama-3.1-8b-instruct", "gemma-2-9b-it")
"""Its weak models that follow instructions (the others fail on form, not on difficulty)."""


class DataError(ValueError):
    """A data file is missing or isn't what its reader expects."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt and how well a weak and a strong model answered it."""

    request: Mapping[str, object]
    """The prompt as the body of a chat request."""
    source: str
    """Benchmark: `mmlu`, `gsm8k`, `mt_bench`, or `llmrouter/<task>`."""
    group: str
    """Rows of one group must fall in the same fold: the subject, or the prompt's own identity."""
    weak: float
    """Score of the weak model, in [0, 1]."""
    strong: float
    """Score of the strong model, in [0, 1]."""

    @property
    def gain(self) -> float:
        """What the strong model adds, in [-1, 1]."""
        return self.strong - self.weak


@dataclass(frozen=True, slots=True)
class PrecisionOutcome:
    """One prompt answered by one model at several precisions; scores in [0, 1]."""

    prompt: str
    task: str
    scores: Mapping[str, float]
    """By precision: `fp16`, `int8`, `int4`."""


def chat(*turns: str) -> dict[str, object]:
    """Return a chat request of user turns."""
    return {"messages": [{"role": "user", "content": turn} for turn in turns]}


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file. Raises `DataError` naming file and line."""
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; the data folder must hold `routellm/`, `llmrouter/`, `precision/` and `prompts/`"
        )
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(value, dict):
                raise DataError(f"{path}:{number}: expected an object, found {type(value).__name__}")
            yield value


def routellm(folder: Path, benchmark: str) -> list[Outcome]:
    """Outcomes of Mixtral-8x7B (weak) and GPT-4-1106 (strong) on `mmlu`, `gsm8k` or `mt_bench` (its scores divided by 10)."""
    found = []
    for row in rows(folder / "routellm" / f"{benchmark}.jsonl.gz"):
        if benchmark == "mt_bench":
            if row["weak_score"] is None or row["strong_score"] is None:
                continue
            # Both turns were judged together, so both are what the router sees.
            found.append(
                Outcome(chat(*row["turns"]), benchmark, row["id"], row["weak_score"] / 10, row["strong_score"] / 10)
            )
        else:
            group = row["domain"] if benchmark == "mmlu" else row["id"]
            found.append(
                Outcome(chat(row["prompt"]), benchmark, group, float(row["weak_correct"]), float(row["strong_correct"]))
            )
    return found


def llmrouter(folder: Path) -> list[Outcome]:
    """Outcomes of four 7B to 9B models (mean, weak) and two of about 50B (mean, strong) on eleven tasks."""
    found = []
    for row in rows(folder / "llmrouter" / "outcomes.jsonl.gz"):
        scores = row["scores"]
        weak = sum(scores[name] for name in WEAK) / len(WEAK)
        strong = sum(scores[name] for name in STRONG) / len(STRONG)
        found.append(Outcome(chat(row["prompt"]), f"llmrouter/{row['task']}", key(row["prompt"]), weak, strong))
    return found


def precision(folder: Path) -> list[PrecisionOutcome]:
    """Outcomes of Llama-3.1-8B at FP16, Q8_0 (as `int8`) and Q4_K_M (as `int4`); extraction rows carry no prompt."""
    return [
        PrecisionOutcome(
            row["prompt"],
            row["task"],
            {"fp16": float(row["fp16"]), "int8": float(row["q8_0"]), "int4": float(row["q4_K_M"])},
        )
        for row in rows(folder / "precision" / "llama31_8b_fp16_q8_q4.jsonl.gz")
    ]


def general_prompts(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Requests of general traffic by source, without outcomes: what thresholds are chosen on."""
    return {
        "mt_bench": [chat(row["turns"][0]) for row in rows(folder / "routellm" / "mt_bench.jsonl.gz")],
        "koala_vicuna": [chat(row["prompt"]) for row in rows(folder / "prompts" / "koala_vicuna.jsonl.gz")],
        "belle_zh": [chat(row["prompt"]) for row in rows(folder / "prompts" / "belle_zh.jsonl.gz")],
        "zh_checkable": [{"messages": row["messages"]} for row in rows(folder / "prompts" / "zh_checkable.jsonl.gz")],
        "gsm8k_train": [chat(row["prompt"]) for row in rows(folder / "prompts" / "gsm8k_train.jsonl.gz")],
    }


def key(prompt: str) -> str:
    """Return a prompt's identity: its letters and digits, lower case, so that near-copies share a fold."""
    return re.sub(r"\W+", "", prompt.lower())[:400]
