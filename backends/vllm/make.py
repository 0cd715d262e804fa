"""`python -m backends.vllm.make`: makes checkpoints in the engine's Python.

Reads one JSON object from standard input, `{"home": ..., "recipes": [...]}`, and writes progress to standard output, a
JSON object a line: `{"message": ..., "fraction": ...}`, or `{"error": ...}` before exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.process.guard import die_with_parent
from backends.vllm import calibrated, smollm2, store, tiny
from backends.vllm.headers import TensorFileError
from backends.vllm.quantize import QuantizeError, quantize_rtn
from backends.vllm.recipes import Method, Recipe, is_folder


class Reporter:
    """Writes progress lines; libraries that print write elsewhere."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._last: tuple[str, int | None] | None = None

    def progress(self, message: str, fraction: float | None) -> None:
        """One line, unless it would say the same as the last."""
        now = (message, None if fraction is None else int(100 * fraction))
        if now != self._last:
            self._last = now
            self._write({"message": message, "fraction": fraction})

    def error(self, message: str) -> None:
        """The last line."""
        self._write({"error": message})

    def _write(self, value: dict[str, Any]) -> None:
        self._out.write(json.dumps(value) + "\n")


def main() -> int:
    """Run the job on standard input; the exit code comes back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parent", type=int, default=0, help="end when this process is gone")
    parent = parser.parse_args().parent
    # SystemExit runs the clean-up that removes half-made folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if parent:
        die_with_parent(parent, signal.SIGTERM)
    job = json.loads(sys.stdin.read())
    reporter = Reporter()
    try:
        for number, item in enumerate(job["recipes"], 1):
            run(Recipe(**item), Path(job["home"]), Steps(reporter, number, len(job["recipes"])))
    except (QuantizeError, TensorFileError, smollm2.SourceError, ImportError, OSError) as error:
        reporter.error(str(error) or repr(error))
        return 1
    return 0


class Steps:
    """Puts each recipe's progress into the whole: `[2/3] quantizing to int8`."""

    def __init__(self, reporter: Reporter, number: int, total: int) -> None:
        self._reporter, self._number, self._total = reporter, number, total

    def __call__(self, message: str, fraction: float | None) -> None:
        """Report one step of this recipe."""
        self._reporter.progress(f"[{self._number}/{self._total}] {message}" if self._total > 1 else message, fraction)


def run(recipe: Recipe, home: Path, progress: store.Progress) -> bool:
    """Make one checkpoint unless it is there and right; True if it was made."""
    target = Path(recipe.target)
    if recipe.kind == "smollm2-135m":
        return store.ensure(target, smollm2.WANTED, lambda f: smollm2.build(f, home / "downloads", progress), progress)
    if recipe.kind == "tiny":

        def build(folder: Path) -> Mapping[str, Any]:
            progress("making the tiny random model", None)
            return tiny.build(folder)

        return store.ensure(target, tiny.WANTED, build, progress)
    return _quantize(recipe, target, progress)


def _quantize(recipe: Recipe, target: Path, progress: store.Progress) -> bool:
    source = _source(recipe.source, progress)
    origin = {"source": recipe.source, "fingerprint": store.fingerprint(source), "precision": recipe.precision}
    with_calibration = {**origin, "method": "llmcompressor", "calibration": calibrated.describe(recipe.calibration)}
    if _method(recipe.method) == "rtn":
        # One that was calibrated while the library was there is better than what could be made now.
        if recipe.method == "auto" and store.is_current(target, with_calibration):
            return False
        wanted = {**origin, "method": "rtn"}
        return store.ensure(target, wanted, lambda f: quantize_rtn(source, f, recipe.precision, progress), progress)
    calibrated.quiet()
    return store.ensure(
        target,
        with_calibration,
        lambda f: calibrated.quantize_calibrated(source, f, recipe.precision, recipe.calibration, progress),
        progress,
    )


def _method(asked: Method) -> Method:
    if asked == "llmcompressor" and not calibrated.is_available():
        raise QuantizeError(
            f"llmcompressor is not installed in {sys.executable}: `pip install 'bitgear[quantize]'`, or method rtn"
        )
    if asked == "auto":
        return "llmcompressor" if calibrated.is_available() else "rtn"
    return asked


def _source(source: str, progress: store.Progress) -> Path:
    if is_folder(source):
        folder = Path(source).expanduser()
        if not (folder / "config.json").is_file():
            raise QuantizeError(f"{folder} is not a checkpoint: it has no config.json")
        return folder
    from huggingface_hub import snapshot_download

    progress(f"fetching {source}", None)
    patterns = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
    return Path(snapshot_download(source, allow_patterns=patterns))


if __name__ == "__main__":
    sys.exit(main())
