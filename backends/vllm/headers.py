"""Headers of checkpoints in safetensors format: what tensors there are, and where, without reading them.

The format: 8 bytes of little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`, then the data
(https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "U32": 4, "U64": 8,
}  # fmt: skip
_MAX_HEADER = 100_000_000
"""Longest header that the format allows, bytes."""


class TensorFileError(Exception):
    """A file that is not what safetensors promises; the message names the file."""


@dataclass(frozen=True)
class Entry:
    """One tensor in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Offset of its first byte in the file."""
    size: int
    """Bytes."""

    @property
    def count(self) -> int:
        """Number of its values."""
        return math.prod(self.shape)

    def raw(self) -> bytes:
        """Its bytes as stored."""
        with self.file.open("rb") as handle:
            handle.seek(self.start)
            return handle.read(self.size)


def files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, in order. Raises TensorFileError when there is none or one is missing."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TensorFileError(f"{index}: not the index of a sharded checkpoint ({error!r})") from error
        found = [folder / n for n in names]
    else:
        found = [folder / SINGLE] if (folder / SINGLE).is_file() else sorted(folder.glob("*.safetensors"))
    missing = [f.name for f in found if not f.is_file()]
    if missing:
        raise TensorFileError(f"{folder}: {missing[0]} is named in {INDEX} but not there")
    if not found:
        raise TensorFileError(f"{folder}: no safetensors files")
    return found


def entries(file: Path) -> dict[str, Entry]:
    """What a file holds, from its header alone, in the order of the data. Raises TensorFileError."""
    size = file.stat().st_size
    with file.open("rb") as handle:
        head = handle.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 0 < length <= min(_MAX_HEADER, size - 8):
            raise TensorFileError(f"{file}: not a safetensors file, or cut short")
        text = handle.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        found = {name: _entry(file, size, 8 + length, name, spec) for name, spec in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise TensorFileError(f"{file}: its header is not what safetensors describes ({error!r})") from error
    return dict(sorted(found.items(), key=lambda item: item[1].start))


def _entry(file: Path, file_size: int, base: int, name: str, spec: dict[str, object]) -> Entry:
    (start, end), shape, dtype = _whole(spec["data_offsets"]), _whole(spec["shape"]), spec["dtype"]
    item = _ITEM_BYTES.get(dtype) if isinstance(dtype, str) else None
    if item is None or end - start != math.prod(shape) * item or base + end > file_size:
        raise TensorFileError(f"{file}: {name} is cut short or of an unknown type ({dtype})")
    return Entry(file, str(dtype), shape, base + start, end - start)


def _whole(numbers: object) -> tuple[int, ...]:
    """Return a list of whole numbers from 0 on. Raises TypeError for anything else."""
    if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError("no list of whole numbers")
    return tuple(numbers)


def all_entries(folder: Path) -> dict[str, Entry]:
    """What a checkpoint holds over all its files. Raises TensorFileError."""
    return {name: entry for file in files(folder) for name, entry in entries(file).items()}
