"""Quantization with a calibration set (GPTQ), where the library llmcompressor is installed beside the engine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.vllm import rtn
from backends.vllm.facts import is_quantized_weight
from backends.vllm.headers import all_entries
from backends.vllm.quantize import QuantizeError, scheme

SAMPLES = 128
SAMPLE_TOKENS = 512
"""How much text calibrates: 128 pieces of 512 tokens are GPTQ's own choice of number (https://arxiv.org/abs/2210.17323)."""

BATCH = 16
"""Pieces that go through a layer together: one at a time, most of the time is the library's own."""

Progress = Callable[[str, float | None], None]


def is_available() -> bool:
    """Whether llmcompressor can be imported here."""
    return importlib.util.find_spec("llmcompressor") is not None


def describe(calibration: str) -> str:
    """What calibrates, for the record: the hash of a given file, or the name of the built-in text."""
    if not calibration:
        return "the manual that comes with Python"
    return "sha256:" + hashlib.sha256(Path(calibration).read_bytes()).hexdigest()


def quantize_calibrated(
    source: Path, target: Path, precision: str, calibration: str, progress: Progress
) -> dict[str, Any]:
    """Quantize the linear layers of `source` into `target` by GPTQ; what was done comes back, for the record.

    int8: W8A8, int4: W4A16, both in the same format as round-to-nearest. Raises QuantizeError.
    """
    import llmcompressor
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import GPTQModifier
    from transformers import AutoModelForCausalLM, AutoTokenizer

    widths = [e.shape[1] for n, e in all_entries(source).items() if is_quantized_weight(n, e.shape)]
    try:
        group = rtn.group_size_for(widths) if precision == "int4" else None
    except ValueError as error:
        raise QuantizeError(f"{source}: {error}") from error
    progress("loading the model for calibration", None)
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    dataset = _dataset(texts(calibration), tokenizer)
    message = f"calibrating {precision} on {len(dataset)} pieces of text (GPTQ)"
    progress(message, None)
    groups = scheme(precision, group, [])["config_groups"]
    recipe = GPTQModifier(ignore=["lm_head", "re:.*mlp.gate$"], config_groups=groups)
    with _counting(message, len(widths), progress):
        oneshot(
            model=model,
            dataset=dataset,
            recipe=recipe,
            max_seq_length=SAMPLE_TOKENS,
            num_calibration_samples=len(dataset),
            batch_size=BATCH,
        )
    model.save_pretrained(target, save_compressed=True)
    tokenizer.save_pretrained(target)
    return {
        "method": "GPTQ",
        "group_size": group,
        "calibration_pieces": len(dataset),
        "versions": {"llmcompressor": llmcompressor.__version__},
    }


def texts(calibration: str) -> list[str]:
    """Calibration texts: of a file (.jsonl with `text`, `prompt` or `messages`; else plain text), or the built-in ones.

    Raises QuantizeError for a line that is none of these.
    """
    if not calibration:
        from pydoc_data.topics import topics

        return [topics[key] for key in sorted(topics)]
    path = Path(calibration)
    if path.suffix != ".jsonl":
        return [path.read_text()]
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            found.append(_text_of(line, f"{path}:{number}"))
    return found


def _text_of(line: str, where: str) -> str:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise QuantizeError(f"{where}: not JSON ({error})") from error
    if isinstance(item, dict):
        for key in ("text", "prompt"):
            if isinstance(item.get(key), str):
                return str(item[key])
        if isinstance(item.get("messages"), list):
            return "\n\n".join(str(m.get("content", "")) for m in item["messages"] if isinstance(m, dict))
    raise QuantizeError(f"{where}: expected an object with `text`, `prompt` or `messages`")


def _dataset(pieces: list[str], tokenizer: Any) -> Any:
    """Pieces of equal length in tokens, evenly taken from all texts."""
    from datasets import Dataset

    tokens = [t for piece in pieces for t in tokenizer(piece, add_special_tokens=False)["input_ids"]]
    count = len(tokens) // SAMPLE_TOKENS
    if count == 0:
        raise QuantizeError(f"the calibration texts have {len(tokens)} tokens; at least {SAMPLE_TOKENS} are needed")
    step = max(1, count // SAMPLES)
    starts = [i * SAMPLE_TOKENS for i in range(0, count, step)][:SAMPLES]
    samples = [tokens[s : s + SAMPLE_TOKENS] for s in starts]
    return Dataset.from_dict({"input_ids": samples, "attention_mask": [[1] * SAMPLE_TOKENS for _ in samples]})


@contextmanager
def _counting(message: str, matrices: int, progress: Progress) -> Iterator[None]:
    """Progress from the library's log, which has a line for each matrix."""
    from llmcompressor.logger import logger

    done = 0

    def read(line: str) -> None:
        nonlocal done
        if "Quantizing" in line:
            done += 1
            progress(message, min(1.0, done / matrices))

    sink = logger.add(read, level="INFO", format="{message}")
    try:
        yield
    finally:
        logger.remove(sink)


def quiet() -> None:
    """Keep the library from writing log files into the working directory."""
    os.environ.setdefault("LLM_COMPRESSOR_LOG_FILE_DISABLED", "true")
