from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.vllm.headers import INDEX, TensorFileError, all_entries, entries, files


def test_a_sharded_checkpoint_is_one(checkpoint: ModuleType, tmp_path: Path) -> None:
    whole = all_entries(checkpoint.write(tmp_path / "one"))
    parts = all_entries(checkpoint.write(tmp_path / "three", shards=3))
    assert whole.keys() == parts.keys()
    assert len(files(tmp_path / "three")) == 3
    assert all(whole[n].raw() == parts[n].raw() for n in whole)


def test_a_missing_shard_is_named(checkpoint: ModuleType, tmp_path: Path) -> None:
    folder = checkpoint.write(tmp_path / "three", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(TensorFileError, match="model-00002-of-00003"):
        files(folder)


def test_no_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TensorFileError, match="no safetensors files"):
        files(tmp_path)


def test_a_broken_index_is_an_error(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("[]")
    with pytest.raises(TensorFileError, match="index"):
        files(tmp_path)


def test_a_file_that_was_cut_short_is_found(source: Path) -> None:
    file = source / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TensorFileError, match="cut short"):
        entries(file)


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["F32", "BF16"]),
    st.lists,
    max_leaves=4,
)


def _framed(value: object) -> bytes:
    text = json.dumps({"tensor": value}).encode()
    return struct.pack("<Q", len(text)) + text


@given(
    st.one_of(
        st.binary(max_size=64),
        st.recursive(st.none() | st.integers() | st.text(), st.lists).map(_framed),
        st.fixed_dictionaries({"dtype": _ODD, "shape": _ODD, "data_offsets": _ODD}).map(_framed),
    )
)
@example(struct.pack("<Q", 100_000) + b"[" * 100_000)
@example(_framed({"dtype": None, "shape": [], "data_offsets": [False, False]}))
@example(_framed({"dtype": "I7", "shape": [0], "data_offsets": [0, 0]}))
@example(_framed({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}))
@example(_framed({"dtype": "F32", "shape": "0", "data_offsets": [0, 0]}))
@example(_framed({"dtype": "F32", "shape": [0], "data_offsets": [-4, -4]}))
@settings(max_examples=100, deadline=None)
def test_anything_else_is_a_clear_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "x.safetensors"
    file.write_bytes(data)
    # A header that is an empty object, or has metadata alone, is a file without tensors; a tensor may have no values.
    with contextlib.suppress(TensorFileError):
        for entry in entries(file).values():
            assert (entry.dtype, entry.size, entry.count, entry.start) in {
                ("F32", 0, 0, len(data)),
                ("BF16", 0, 0, len(data)),
            }
