"""A full-precision checkpoint folder to a quantized one by round-to-nearest, file by file, in vLLM's compressed-tensors format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from backends.vllm import rtn, tensors
from backends.vllm.facts import is_quantized_weight
from backends.vllm.headers import INDEX, Entry, all_entries, entries, files

Progress = Callable[[str, float | None], None]
_SKIPPED = (".bin", ".pt", ".pth", ".gguf", ".safetensors", ".onnx", ".h5", ".msgpack")
"""Weights in any form: the new ones take their place."""


class QuantizeError(Exception):
    """A checkpoint that cannot be quantized; the message says why."""


def quantize_rtn(source: Path, target: Path, precision: str, progress: Progress) -> dict[str, Any]:
    """Quantize the projections of the decoder layers of `source` into the folder `target` (which exists, empty).

    int8: W8A8, one scale per output channel, activations per token at run time. int4: W4A16, symmetric, one scale per
    group of inputs (128 where it divides every input width, else 64 or 32). What was done comes back, for the record.
    Raises QuantizeError, or TensorFileError for a broken checkpoint.
    """
    config = json.loads((source / "config.json").read_text())
    if config.get("quantization_config") or config.get("text_config", {}).get("quantization_config"):
        raise QuantizeError(f"{source} is quantized already; quantizing starts from a full-precision checkpoint")
    found = all_entries(source)
    chosen = {name: entry for name, entry in found.items() if is_quantized_weight(name, entry.shape)}
    if not chosen:
        raise QuantizeError(
            f"{source}: no projection matrices inside decoder layers found; this architecture is not known"
        )
    group = _group_size(source, chosen.values()) if precision == "int4" else None
    copy_metadata(source, target)
    worst = _convert(source, target, set(chosen), precision, group, progress)
    config["quantization_config"] = scheme(precision, group, ignored(found, chosen))
    (target / "config.json").write_text(json.dumps(config, indent=1))
    return {
        "method": "round-to-nearest",
        "group_size": group,
        "matrices": len(chosen),
        "largest_relative_error": round(worst, 4),
    }


def _group_size(source: Path, chosen: Iterable[Entry]) -> int:
    try:
        return rtn.group_size_for(entry.shape[1] for entry in chosen)
    except ValueError as error:
        raise QuantizeError(f"{source}: {error}") from error


def _convert(
    source: Path, target: Path, chosen: set[str], precision: str, group: int | None, progress: Progress
) -> float:
    """Write every file anew; the largest relative error of a matrix comes back."""
    weight_map: dict[str, str] = {}
    total = worst = done = 0.0
    for file in files(source):
        written: dict[str, tensors.Tensor] = {}
        for name, entry in entries(file).items():
            if name not in chosen:
                written[name] = tensors.copy(entry)
                continue
            parts, error = quantized(name, entry, precision, group)
            written.update(parts)
            worst = max(worst, error)
            done += 1
            progress(f"quantizing to {precision}", done / len(chosen))
        total += tensors.write(target / file.name, written)
        weight_map.update(dict.fromkeys(written, file.name))
    if (source / INDEX).is_file():
        tensors.write_index(target, weight_map, int(total))
    return worst


def quantized(name: str, entry: Entry, precision: str, group: int | None) -> tuple[dict[str, tensors.Tensor], float]:
    """The tensors that take the place of one weight, and the relative error they make."""
    weight = tensors.floats(entry)
    # vLLM reads scales in the model's type; a float32 checkpoint is served in 16 bits.
    kind = "BF16" if entry.dtype in ("BF16", "F32", "F64") else entry.dtype
    stem = name.removesuffix("weight")
    if precision == "int8":
        values, scale = rtn.int8_per_channel(weight)
        parts = {name: tensors.tensor(values, "I8"), f"{stem}weight_scale": tensors.tensor(scale, kind)}
        return parts, rtn.relative_error(weight, values * scale)
    if precision == "int4" and group is not None:
        values, scale = rtn.int4_groups(weight, group)
        shape = rtn.shape_of(weight)
        parts = {
            f"{stem}weight_packed": tensors.tensor(rtn.pack_int4(values), "I32"),
            f"{stem}weight_scale": tensors.tensor(scale, kind),
            f"{stem}weight_shape": tensors.tensor(shape, "I64"),
        }
        return parts, rtn.relative_error(weight, values * scale.repeat(group, axis=1))
    raise QuantizeError(f"precision {precision!r} has no round-to-nearest format here; int8 and int4 have")


def ignored(found: dict[str, Entry], chosen: dict[str, Entry]) -> list[str]:
    """Modules with a weight matrix that stay as they are: vLLM must be told, or it looks for their scales."""
    rest = {
        n.removesuffix(".weight")
        for n, e in found.items()
        if n.endswith(".weight") and len(e.shape) == 2 and n not in chosen
    }
    return sorted({"lm_head", *(n for n in rest if "embed" not in n)})


def scheme(precision: str, group: int | None, ignore: list[str]) -> dict[str, Any]:
    """`quantization_config` of config.json, as the compressed-tensors library writes it."""

    def weights(bits: int, strategy: str) -> dict[str, Any]:
        return {
            "num_bits": bits,
            "type": "int",
            "symmetric": True,
            "strategy": strategy,
            "group_size": group,
            "dynamic": False,
            "actorder": None,
            "block_structure": None,
            "observer": "minmax",
            "observer_kwargs": {},
        }

    activations = {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "strategy": "token",
        "dynamic": True,
        "observer": None,
        "observer_kwargs": {},
    }
    is_int8 = precision == "int8"
    return {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if is_int8 else "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ignore,
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights(8, "channel") if is_int8 else weights(4, "group"),
                "input_activations": activations if is_int8 else None,
                "output_activations": None,
            }
        },
    }


def copy_metadata(source: Path, target: Path) -> None:
    """Copy tokenizer, templates and code: everything but weights, records and subfolders."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix not in _SKIPPED and path.name not in (INDEX, "bitgear.json"):
            shutil.copyfile(path, target / path.name)
