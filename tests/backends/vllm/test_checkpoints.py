from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from backends.processes import PlanError
from backends.settings import BackendSettings
from backends.vllm import checkpoints, store
from backends.vllm.engine import Engine
from backends.vllm.recipes import Recipe

Report = Callable[[str, float | None], None]
ENGINE = Engine(python=sys.executable, version="0.32.0", build="cpu", has_plugin=True, has_bitgear=True)


def _backend(precision: str, **fields: object) -> BackendSettings:
    return BackendSettings.model_validate({"precision": precision, "kind": "vllm", **fields})


async def test_prepare_makes_what_is_missing_and_keeps_it(
    checkpoint: ModuleType,
    tmp_path: Path,
    progress: Report,
    steps: list[tuple[str, float | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "probe", lambda python: ENGINE)
    source = checkpoint.write(tmp_path / "source", shards=2)
    backends = [_backend(p) for p in ("fp16", "int8", "int4")]

    async def prepare() -> None:
        await checkpoints.prepare(
            "g", str(source), backends, home=tmp_path / "home", python=sys.executable, progress=progress
        )

    await prepare()
    assert any("int8" in m and f == 1.0 for m, f in steps)
    assert any(m.startswith("[2/2] quantizing to int4") for m, _ in steps)
    records = sorted((tmp_path / "home" / "models").rglob(store.RECORD))
    assert [json.loads(r.read_text())["wanted"]["precision"] for r in records] == ["int4", "int8"]
    stamps = [r.stat().st_mtime_ns for r in records]
    await prepare()
    assert [r.stat().st_mtime_ns for r in records] == stamps
    checkpoint.write(tmp_path / "source", shards=2, seed=1)
    await prepare()
    assert all(r.stat().st_mtime_ns > s for r, s in zip(records, stamps, strict=True))


async def test_other_kinds_need_nothing(tmp_path: Path, progress: Report) -> None:
    backend = BackendSettings.model_validate({"precision": "int8", "kind": "simulator"})
    await checkpoints.prepare("g", None, [backend], home=tmp_path, python="/no/such/python", progress=progress)
    assert not list(tmp_path.iterdir())


async def test_an_engine_that_cannot_serve_is_refused(
    tmp_path: Path, progress: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        checkpoints, "probe", lambda python: Engine(python, "0.32.0", "cpu", has_plugin=False, has_bitgear=True)
    )
    with pytest.raises(PlanError, match="INT4 on a CPU needs the vLLM plug-in"):
        await checkpoints.prepare("g", "tiny", [_backend("int4")], home=tmp_path, progress=progress)


async def test_quantize_says_why_it_cannot(tmp_path: Path, progress: Report) -> None:
    with pytest.raises(PlanError, match=r"no config\.json"):
        await checkpoints.quantize(str(tmp_path), tmp_path / "out", "int8", home=tmp_path, progress=progress)
    assert not (tmp_path / "out").exists()


async def test_a_missing_library_is_named(source: Path, tmp_path: Path, progress: Report) -> None:
    job = checkpoints.quantize(
        str(source), tmp_path / "out", "int4", home=tmp_path, method="llmcompressor", progress=progress
    )
    with pytest.raises(PlanError, match=r"bitgear\[quantize\]"):
        await job


async def test_an_interpreter_that_is_not_there(tmp_path: Path, progress: Report) -> None:
    recipe = Recipe(kind="tiny", target=str(tmp_path / "x"))
    with pytest.raises(PlanError, match="/no/such/python"):
        await checkpoints.make([recipe], home=tmp_path, python="/no/such/python", progress=progress)


async def test_a_crash_shows_the_last_lines(tmp_path: Path, progress: Report) -> None:
    engine = tmp_path / "python"
    engine.write_text(
        '#!/bin/sh\necho first\necho \'{"message": "half way", "fraction": 0.5}\'\necho out of memory >&2\nexit 9\n'
    )
    engine.chmod(0o755)
    recipe = Recipe(kind="tiny", target=str(tmp_path / "x"))
    with pytest.raises(PlanError, match="exit code 9:\nout of memory"):
        await checkpoints.make([recipe], home=tmp_path, python=str(engine), progress=progress)


async def test_cancelling_ends_the_making(tmp_path: Path) -> None:
    engine, began = tmp_path / "python", asyncio.Event()
    engine.write_text(
        f'#!/bin/sh\necho $$ > {tmp_path}/pid\necho \'{{"message": "began", "fraction": null}}\'\nexec sleep 600\n'
    )
    engine.chmod(0o755)
    recipe = Recipe(kind="tiny", target=str(tmp_path / "x"))
    task = asyncio.create_task(
        checkpoints.make([recipe], home=tmp_path, python=str(engine), progress=lambda *_: began.set())
    )
    await asyncio.wait_for(began.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
