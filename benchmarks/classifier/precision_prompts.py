"""Make a prompts file for `bitgear calibrate` from the public data, both languages, the shortest prompts of each source.

    python benchmarks/classifier/precision_prompts.py --data DATA --out prompts.jsonl [--each 255] [--long 40]

Short prompts, so that a CPU can answer them; which ones is decided by length and then by a hash, never by an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classifier import data

SYSTEM = "Be brief."
"""Before prompts without a system text of their own: chat templates put in a longer one otherwise."""
LONGEST = 150
"""Characters (a Han character counts four)."""


def sources(folder: Path) -> dict[str, Iterator[dict[str, Any]]]:
    """Return prompts by source."""
    prompts = folder / "prompts"
    return {
        "gsm8k_train": (
            {
                "prompt": f"{row['prompt']}\nAnswer with the number only.",
                "answer": row["answer"],
                "task": "number",
                "language": "en",
            }
            for row in data.rows(prompts / "gsm8k_train.jsonl.gz")
        ),
        "zh_checkable": (
            {"messages": row["messages"], "accepted": row["answer"], "task": "text"}
            for row in data.rows(prompts / "zh_checkable.jsonl.gz")
        ),
        "mmlu": (
            {"prompt": row["prompt"], "task": "choice", "language": "en"}
            for row in data.rows(folder / "routellm" / "mmlu.jsonl.gz")
        ),
        "belle_zh": ({"prompt": row["prompt"], "language": "zh"} for row in data.rows(prompts / "belle_zh.jsonl.gz")),
        "koala_vicuna": (
            {"prompt": row["prompt"], "language": "en"} for row in data.rows(prompts / "koala_vicuna.jsonl.gz")
        ),
    }


def weight(row: dict[str, Any]) -> int:
    """Return a prompt's length in characters, a Han character counted four times (it takes that many tokens' bytes)."""
    texts = [row["prompt"]] if "prompt" in row else [m["content"] for m in row["messages"]]
    return sum(4 if char > "⺀" else 1 for text in texts for char in text)


def chosen(rows: Iterator[dict[str, Any]], each: int) -> list[dict[str, Any]]:
    """Return `each` rows of at most `LONGEST`, drawn by hash; longer ones, the shortest first, where those do not suffice."""
    listed = sorted(rows, key=lambda row: (max(weight(row), LONGEST), hashed(row)))
    return listed[:each]


def with_system(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as messages that begin with a system text."""
    rest = {name: value for name, value in row.items() if name not in ("prompt", "messages")}
    messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": SYSTEM}, *messages]
    return {"messages": messages, **rest}


def hashed(row: dict[str, Any]) -> str:
    """Return a row's hash: an order without meaning."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with prompts/ and routellm/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=255, help="prompts of each source (koala_vicuna has 260)")
    parser.add_argument(
        "--long", type=int, default=40, help="prompts of zh_checkable, whose shortest are three times as long"
    )
    options = parser.parse_args()
    found = [
        with_system(row)
        for name, rows in sources(options.data).items()
        for row in chosen(rows, options.long if name == "zh_checkable" else options.each)
    ]
    # Mixed by a hash that nothing was chosen by, so that a part of the run is a fair sample of the whole.
    found.sort(key=lambda row: hashed({"order": row}))
    options.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found), encoding="utf-8")
    print(
        f"{options.out}: {len(found)} prompts, {sum(map(weight, found)) / len(found):.0f} characters each (system text included)"
    )


if __name__ == "__main__":
    main()
