"""Answers of `/v1/responses` and `/v1/messages` recorded from vLLM 0.32: a stream and a plain answer to the same request are one entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.cache.answers import as_stream, checked
from router.cache.assemble import from_stream

DATA = Path(__file__).parents[2] / "data/vllm"
OWN = ("id", "item_id", "created_at", "sequence_number")


def bare(value: Any) -> Any:
    """Without what each answer has of its own."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k not in OWN}
    return [bare(v) for v in value] if isinstance(value, list) else value


def events(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(part.split(b"data: ", 1)[1]) for part in raw.strip().split(b"\n\n")]


@pytest.mark.parametrize("name", ["responses", "responses-logprobs"])
def test_vllms_own_stream_and_plain_answer_are_one_entry(name: str) -> None:
    stream, plain = (DATA / f"{name}.sse").read_bytes(), (DATA / f"{name}.json").read_bytes()
    kept = from_stream(stream, "responses")
    assert kept is not None
    assert bare(json.loads(kept)) == bare(json.loads(plain))
    assert checked(kept, "responses", True) == checked(plain, "responses", True) is not None
    # Both were cut by the request's limit: without one of its own that is an answer cut by the context's length.
    assert checked(plain, "responses", False) is None


@pytest.mark.parametrize("name", ["responses", "responses-logprobs"])
def test_a_replay_has_vllms_events_with_one_delta(name: str) -> None:
    theirs = events((DATA / f"{name}.sse").read_bytes())
    ours = events(as_stream((DATA / f"{name}.json").read_bytes(), "responses", False))
    once = [e for i, e in enumerate(theirs) if "delta" not in e or e["type"] != theirs[i - 1]["type"]]
    assert [e["type"] for e in ours] == [e["type"] for e in once]
    for mine, other in zip(ours, once, strict=True):
        assert mine.keys() >= other.keys() - {"delta", "logprobs"}
        if "delta" not in mine and mine["type"] not in ("response.created", "response.in_progress"):
            assert {k: v for k, v in bare(mine).items() if k != "logprobs"} == {
                k: v for k, v in bare(other).items() if k != "logprobs"
            }


def test_of_messages_too() -> None:
    stream, plain = (DATA / "messages.sse").read_bytes(), (DATA / "messages.json").read_bytes()
    kept = from_stream(stream, "messages")
    assert kept is not None
    assert {k: v for k, v in bare(json.loads(kept)).items() if v is not None} == bare(json.loads(plain))
    assert checked(kept, "messages", False) == checked(plain, "messages", False) is not None
    theirs, ours = events(stream), events(as_stream(plain, "messages", False))
    once = [e for i, e in enumerate(theirs) if "delta" not in e or e["type"] != theirs[i - 1]["type"]]
    assert [e["type"] for e in ours] == [e["type"] for e in once]
    whole = bare([e for e in once if e["type"] != "content_block_delta"])
    assert bare([e for e in ours if e["type"] != "content_block_delta"]) == whole
    assert from_stream(stream.strip().rpartition(b"\n\n")[0], "messages") is None


@pytest.mark.parametrize("cut", [-1, -2])
def test_a_stream_without_its_end_is_not_kept(cut: int) -> None:
    parts = (DATA / "responses.sse").read_bytes().strip().split(b"\n\n")
    assert from_stream(b"\n\n".join(parts[:cut]), "responses") is None
    failed = b'event: error\ndata: {"type":"error","error":{"message":"x"}}'
    assert from_stream(b"\n\n".join([*parts[:3], failed]), "responses") is None
