from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def prompts_file(tmp_path: Path) -> Callable[[int], Path]:
    """Writes a prompts file of so many prompts, open and checkable, in two languages."""

    def write(size: int) -> Path:
        rows = []
        for number in range(size):
            if number % 3 == 0:
                rows.append({"prompt": f"What is {number} plus one?", "answer": number + 1, "task": "number"})
            elif number % 3 == 1:
                rows.append({"prompt": f"请写一首关于第{number}座山的诗。", "language": "zh"})
            else:
                rows.append({"messages": [{"role": "user", "content": f"Explain the {number}th case briefly."}]})
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
