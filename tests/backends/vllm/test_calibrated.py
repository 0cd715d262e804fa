from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.vllm.calibrated import describe, texts
from backends.vllm.quantize import QuantizeError


def test_the_built_in_text_is_there() -> None:
    assert sum(map(len, texts(""))) > 200_000
    assert describe("") == "the manual that comes with Python"


def test_all_forms_of_lines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    lines = [
        {"text": "one"},
        {"prompt": "two"},
        {"messages": [{"role": "user", "content": "three"}, {"content": "四"}]},
    ]
    file.write_text("\n".join(json.dumps(x) for x in lines) + "\n\n")
    assert texts(str(file)) == ["one", "two", "three\n\n四"]
    assert describe(str(file)).startswith("sha256:")


def test_plain_text_is_one_piece(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a\nb")
    assert texts(str(tmp_path / "c.txt")) == ["a\nb"]


@pytest.mark.parametrize("line", ["{", "[]", '{"other": 1}', '{"text": 3}'])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(QuantizeError, match=r"c\.jsonl:2"):
        texts(str(file))
