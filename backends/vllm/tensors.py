"""Values of tensors in safetensors files, read and written with numpy alone, one tensor at a time.

numpy has no bfloat16, so the safetensors library's numpy interface cannot read most models; here bfloat16 is widened to
float32 by a shift. One tensor at a time, so that a checkpoint larger than memory still goes through.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.vllm.headers import INDEX, Entry, TensorFileError

Floats = npt.NDArray[np.float32]
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1"}


@dataclass(frozen=True)
class Tensor:
    """One tensor to write."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def floats(entry: Entry) -> Floats:
    """A tensor's values as float32. Raises TensorFileError where its type is not a float of 16 bits or more."""
    if entry.dtype == "BF16":
        wide = np.frombuffer(entry.raw(), "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(entry.shape)
    if entry.dtype in ("F16", "F32", "F64"):
        return np.frombuffer(entry.raw(), _NUMPY[entry.dtype]).astype(np.float32).reshape(entry.shape)
    raise TensorFileError(
        f"{entry.file}: tensors of type {entry.dtype} cannot be quantized; a full-precision checkpoint is needed"
    )


def tensor(array: npt.NDArray[Any], dtype: str) -> Tensor:
    """A numpy array as a tensor of safetensors type `dtype`; BF16 rounds float32 values (nearest, ties to even)."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        return Tensor(dtype, array.shape, rounded.astype("<u2").tobytes())
    return Tensor(dtype, array.shape, np.ascontiguousarray(array, _NUMPY[dtype]).tobytes())


def copy(entry: Entry) -> Tensor:
    """A tensor as it is stored."""
    return Tensor(entry.dtype, entry.shape, entry.raw())


def write(file: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write one file, tensors in the order given; the bytes of their data come back."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, item in tensors.items():
        header[name] = {
            "dtype": item.dtype,
            "shape": list(item.shape),
            "data_offsets": [offset, offset + len(item.data)],
        }
        offset += len(item.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    # The data begins aligned to 8 bytes.
    text += b" " * (-len(text) % 8)
    with file.open("wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        for item in tensors.values():
            handle.write(item.data)
    return offset


def write_index(folder: Path, weight_map: Mapping[str, str], total_size: int) -> None:
    """Write the index of a sharded checkpoint; `total_size` is the tensors' bytes."""
    index = {"metadata": {"total_size": total_size}, "weight_map": dict(weight_map)}
    (folder / INDEX).write_text(json.dumps(index, indent=1))
