from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.vllm import tensors
from backends.vllm.headers import TensorFileError, entries


def test_values_come_back_as_written(tmp_path: Path) -> None:
    values = {
        "half": tensors.tensor(np.array([[1.5, -2.25]], np.float32), "F16"),
        "brain": tensors.tensor(np.array([1.0, -3.0, 0.15625], np.float32), "BF16"),
        "single": tensors.tensor(np.array([1 / 3], np.float32), "F32"),
        "bytes": tensors.tensor(np.array([-128, 127], np.int8), "I8"),
    }
    size = tensors.write(tmp_path / "x.safetensors", values)
    found = entries(tmp_path / "x.safetensors")
    assert list(found) == list(values)
    assert size == sum(e.size for e in found.values())
    assert tensors.floats(found["half"]).tolist() == [[1.5, -2.25]]
    assert tensors.floats(found["brain"]).tolist() == [1.0, -3.0, 0.15625]
    assert tensors.floats(found["single"]).tolist() == [np.float32(1 / 3)]
    assert tensors.copy(found["bytes"]) == values["bytes"]


def test_only_floats_can_be_quantized(tmp_path: Path) -> None:
    tensors.write(tmp_path / "x.safetensors", {"q": tensors.tensor(np.zeros(4, np.int8), "I8")})
    with pytest.raises(TensorFileError, match="full-precision checkpoint"):
        tensors.floats(entries(tmp_path / "x.safetensors")["q"])


@given(st.floats(-(2.0**99), 2.0**99, width=32))
def test_bfloat16_rounds_to_the_nearest(value: float) -> None:
    exact = np.array([value], np.float32)
    stored = tensors.tensor(exact, "BF16")
    back = (np.frombuffer(stored.data, "<u2").astype(np.uint32) << 16).view(np.float32)[0]
    assert abs(back - value) <= abs(value) * 2**-8 + 1e-38
