"""Making missing checkpoints from the light side: the work itself runs in the engine's Python, progress comes back as lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.processes import PlanError
from backends.settings import BackendSettings
from backends.vllm.engine import probe, problems
from backends.vllm.recipes import Method, Recipe, weights_of

Progress = Callable[[str, float | None], None]
"""Told what is being made, and the share that is done in [0, 1] (None: not known)."""

_KEPT_ERROR_LINES = 20


async def prepare(
    group: str,
    base_model: str | None,
    backends: Sequence[BackendSettings],
    *,
    home: Path,
    python: str = sys.executable,
    progress: Progress,
) -> None:
    """Make what the group's vLLM variants lack; checkpoints that are still right are kept.

    Also checks the engine's Python (vLLM there, INT4 plug-in there). Raises PlanError. Cancelling ends the making, and
    nothing half-made is ever taken for a checkpoint.
    """
    chosen = [b for b in backends if b.kind == "vllm"]
    if not chosen:
        return
    found = problems(await asyncio.to_thread(probe, python), int4=any(b.precision == "int4" for b in chosen))
    if found:
        raise PlanError(f"group {group!r}: " + "; ".join(found))
    recipes: dict[str, Recipe] = {}
    for backend in chosen:
        for recipe in weights_of(group, base_model, chosen, backend, home).recipes:
            recipes.setdefault(recipe.target, recipe)
    await make(list(recipes.values()), home=home, python=python, progress=progress)


async def quantize(
    source: str,
    target: Path,
    precision: str,
    *,
    home: Path,
    python: str = sys.executable,
    method: Method = "auto",
    calibration: Path | None = None,
    progress: Progress,
) -> None:
    """Make one quantized checkpoint of a folder or a hub's model (`int8`: W8A8, `int4`: W4A16). Raises PlanError."""
    recipe = Recipe(
        kind="quantize",
        target=str(target),
        precision=precision,
        source=source,
        method=method,
        calibration=str(calibration) if calibration else "",
    )
    await make([recipe], home=home, python=python, progress=progress)


async def make(recipes: Sequence[Recipe], *, home: Path, python: str = sys.executable, progress: Progress) -> None:
    """Run recipes in order in the engine's Python. Raises PlanError with the reason that it gave."""
    if not recipes:
        return
    job = json.dumps({"home": str(home.expanduser()), "recipes": [r.as_json() for r in recipes]})
    process = await _start(python)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    complaints = asyncio.ensure_future(_last_lines(process.stderr))
    failure = ""
    try:
        # It may have ended already (uvloop then raises RuntimeError): its exit code and last lines say why.
        with contextlib.suppress(OSError, RuntimeError):
            process.stdin.write(job.encode())
            process.stdin.write_eof()
        async for line in process.stdout:
            failure = _report(line, progress) or failure
        code = await process.wait()
        last = await complaints
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        complaints.cancel()
    if code != 0:
        raise PlanError(failure or f"making checkpoints ended with exit code {code}:\n" + "\n".join(last))


async def _start(python: str) -> asyncio.subprocess.Process:
    quiet = {"PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [python, "-m", "backends.vllm.make", "--parent", str(os.getpid())]
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **quiet}
        )
    except OSError as error:
        raise PlanError(f"cannot run the engine's Python {python}: {error}") from error


def _report(line: bytes, progress: Progress) -> str:
    """Pass one line of progress on; the message of an error comes back."""
    try:
        report = json.loads(line)
    except ValueError:
        # A library's print, not ours.
        return ""
    if "error" in report:
        return str(report["error"])
    progress(str(report["message"]), report.get("fraction"))
    return ""


async def _last_lines(stream: asyncio.StreamReader) -> list[str]:
    lines: list[str] = []
    while chunk := await stream.read(65536):
        lines = [*lines, *chunk.decode(errors="replace").splitlines()][-_KEPT_ERROR_LINES:]
    return lines
