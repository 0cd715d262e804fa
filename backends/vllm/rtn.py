"""Round-to-nearest quantization of one weight matrix, in the layouts that vLLM loads (compressed-tensors)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from backends.vllm.tensors import Floats

GROUP_SIZES = (128, 64, 32)
"""Tried in this order; every kernel at hand knows all three."""
_TINY = 1e-8
"""Smallest scale: an all-zero row stays zero instead of dividing by zero."""


def group_size_for(widths: Iterable[int]) -> int:
    """The largest group size that divides every layer's input width. Raises ValueError when none does."""
    all_widths = sorted(set(widths))
    for size in GROUP_SIZES:
        if all(width % size == 0 for width in all_widths):
            return size
    raise ValueError(f"no group size of {GROUP_SIZES} divides all input widths {all_widths}")


def int8_per_channel(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Symmetric INT8 with one scale per output channel: `weight ~ q * scale`; scale has shape [out, 1]."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, _TINY).astype(np.float32)
    return np.clip(np.rint(weight / scale), -128, 127).astype(np.int8), scale


def int4_groups(weight: Floats, group: int) -> tuple[npt.NDArray[np.int8], Floats]:
    """Symmetric INT4 with one scale per `group` inputs: values in [-8, 7], scale of shape [out, in / group]."""
    rows, columns = weight.shape
    blocks = weight.reshape(rows, columns // group, group)
    scale = np.maximum(np.abs(blocks).max(axis=2, keepdims=True) / 7, _TINY).astype(np.float32)
    values = np.clip(np.rint(blocks / scale), -8, 7).astype(np.int8)
    return values.reshape(rows, columns), scale[:, :, 0]


def pack_int4(values: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """Eight values in [-8, 7] a word along the inputs, offset by 8, the first in the lowest bits: [out, in / 8]."""
    rows, columns = values.shape
    nibbles = (values.astype(np.int16) + 8).astype(np.uint32).reshape(rows, columns // 8, 8)
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    words: npt.NDArray[np.uint32] = np.bitwise_or.reduce(nibbles << shifts, axis=2)
    return words.view(np.int32)


def unpack_int4(words: npt.NDArray[np.int32]) -> npt.NDArray[np.int8]:
    """The inverse of `pack_int4`."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    nibbles = (np.ascontiguousarray(words).view(np.uint32)[:, :, None] >> shifts) & 0xF
    return (nibbles.astype(np.int16) - 8).astype(np.int8).reshape(words.shape[0], -1)


def relative_error(weight: Floats, restored: Floats) -> float:
    """Root-mean-square error over root-mean-square weight."""
    norm = float(np.linalg.norm(weight))
    return float(np.linalg.norm(weight - restored)) / norm if norm else 0.0


def shape_of(weight: Floats) -> npt.NDArray[np.int64]:
    """The matrix's shape as the tensor that goes with packed values."""
    return np.array(weight.shape, np.int64)
