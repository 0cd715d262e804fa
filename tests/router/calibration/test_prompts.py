from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.calibration.prompts import PromptError, parse, read_prompts


def test_a_file_is_read_in_order_and_each_prompt_once(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl.gz"
    lines = ['{"prompt": "b", "answer": 7, "task": "number"}', "", '{"prompt": "a"}', '{"prompt": "b"}']
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = read_prompts(path)
    assert [p.messages[0]["content"] for p in found] == ["b", "a"]
    assert len({p.key for p in found}) == 2


def test_kinds_are_inferred() -> None:
    assert parse('{"prompt": "a"}', "x").task == "open"
    assert parse('{"prompt": "a", "answer": ["b", "c"]}', "x").accepted == ("b", "c")
    assert parse('{"prompt": "a", "answer": "b"}', "x").task == "text"
    made = parse('{"prompt": "a", "schema": {"type": "object"}, "tools": [{"type": "function"}]}', "x")
    assert made.task == "json"
    assert made.request()["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert made.request()["tools"] == [{"type": "function"}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "f:3: not JSON"),
        ("[]", "f:3: expected an object"),
        ("{}", "f:3: prompt: expected either"),
        ('{"prompt": "a", "messages": []}', "f:3: prompt: expected either"),
        ('{"prompt": "  "}', "f:3: prompt: expected a text"),
        ('{"messages": []}', "f:3: messages: expected a list"),
        ('{"messages": [{"role": "boss", "content": "x"}]}', r"f:3: messages\[0\].role"),
        ('{"messages": [{"role": "user"}]}', r"f:3: messages\[0\].content"),
        ('{"prompt": "a", "task": "poem"}', "f:3: task: found 'poem'"),
        ('{"prompt": "a", "task": "number"}', "f:3: answer: missing"),
        ('{"prompt": "a", "answer": []}', "f:3: answer: expected"),
        ('{"prompt": "a", "accepted": [true]}', "f:3: accepted: expected"),
        ('{"prompt": "a", "answer": "1", "accepted": "1"}', "f:3: accepted: expected either"),
        ('{"prompt": "a", "language": 3}', "f:3: language"),
        ('{"prompt": "a", "max_tokens": 0}', "f:3: max_tokens"),
        ('{"prompt": "a", "schema": 1}', "f:3: schema"),
        ('{"prompt": "a", "tools": {}}', "f:3: tools"),
        ('{"prompt": "a", "answr": "1"}', "f:3: answr: unknown field"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_field(line: str, told: str) -> None:
    with pytest.raises(PromptError, match=f"^{told}"):
        parse(line, "f:3")


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["user", "number", "\ud800"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["role", "content", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
fields = ["prompt", "messages", "answer", "accepted", "task", "language", "max_tokens", "schema", "tools"]
texts = st.text(min_size=1).filter(str.strip)
turns = st.fixed_dictionaries({"role": st.just("user"), "content": texts}, optional={"x": values})
rows = st.one_of(
    st.fixed_dictionaries({"prompt": texts}, optional=dict.fromkeys(fields[2:], values)),
    st.fixed_dictionaries({"messages": st.lists(turns, max_size=2)}, optional=dict.fromkeys(fields[2:], values)),
    st.dictionaries(st.sampled_from(fields), values),
)


@given(line=st.one_of(st.text(), rows.map(json.dumps)))
@example(line="[" * 100_000)
@example(line='{"prompt": "\\ud800"}')
@example(line='{"prompt": "a", "tools": [{"\\udfff": 1}]}')
@example(line='{"prompt": "a", "answer": 1e999}')
def test_any_line_is_read_or_refused(line: str) -> None:
    told = ""
    try:
        found = parse(line, "f:1")
    except PromptError as error:
        told = str(error)
    if told:
        assert told.startswith("f:1: ")
        assert told.encode()
    else:
        assert found.messages
        assert json.dumps(found.request(), ensure_ascii=False).encode()


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="cannot be read"):
        read_prompts(tmp_path / "none.jsonl")
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(PromptError, match="no prompts"):
        read_prompts(tmp_path / "e.jsonl")
    (tmp_path / "g.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(PromptError, match="cannot be read"):
        read_prompts(tmp_path / "g.jsonl.gz")
