from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.vllm import store

Report = Callable[[str, float | None], None]
WANTED = {"model": "x", "precision": "int8"}


def _builder(source: Path) -> Callable[[Path], Mapping[str, Any]]:
    def build(folder: Path) -> Mapping[str, Any]:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        return {"method": "copy"}

    return build


def test_made_once_and_kept(source: Path, tmp_path: Path, progress: Report) -> None:
    target = tmp_path / "made" / "int8"
    assert store.ensure(target, WANTED, _builder(source), progress)
    assert not store.ensure(target, WANTED, _builder(source), progress)
    record = store.read_record(target)
    assert record is not None
    assert record["wanted"] == WANTED
    assert record["made"]["method"] == "copy"
    assert record["made"]["date"]


def test_made_anew_when_something_else_is_wanted(source: Path, tmp_path: Path, progress: Report) -> None:
    target = tmp_path / "int8"
    store.ensure(target, WANTED, _builder(source), progress)
    assert store.ensure(target, {**WANTED, "precision": "int4"}, _builder(source), progress)
    assert not store.is_current(target, WANTED)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == [".int8.lock"]


def test_a_failure_leaves_nothing(tmp_path: Path, progress: Report) -> None:
    def fail(folder: Path) -> Mapping[str, Any]:
        (folder / "model.safetensors").write_bytes(b"half")
        raise RuntimeError("out of something")

    with pytest.raises(RuntimeError, match="out of something"):
        store.ensure(tmp_path / "int8", WANTED, fail, progress)
    assert [p.name for p in tmp_path.iterdir()] == [".int8.lock"]


def test_a_failure_keeps_the_old_one(source: Path, tmp_path: Path, progress: Report) -> None:
    target = tmp_path / "int8"
    store.ensure(target, WANTED, _builder(source), progress)

    def fail(folder: Path) -> Mapping[str, Any]:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.ensure(target, {"other": True}, fail, progress)
    assert store.is_current(target, WANTED)


def test_leftovers_of_a_crash_are_removed(source: Path, tmp_path: Path, progress: Report) -> None:
    crashed = tmp_path / ".int8.partial-99999"
    crashed.mkdir()
    (crashed / "model.safetensors").write_bytes(b"half")
    store.ensure(tmp_path / "int8", WANTED, _builder(source), progress)
    assert not crashed.exists()


@pytest.mark.parametrize("damage", ["record", "garbage", "list", "weights", "format"])
def test_a_damaged_one_is_not_taken(source: Path, tmp_path: Path, progress: Report, damage: str) -> None:
    target = tmp_path / "int8"
    store.ensure(target, WANTED, _builder(source), progress)
    record = target / store.RECORD
    if damage == "record":
        record.unlink()
    elif damage == "garbage":
        record.write_text("{")
    elif damage == "list":
        record.write_text("[]")
    elif damage == "format":
        record.write_text(json.dumps({**json.loads(record.read_text()), "format": 0}))
    else:
        (target / "model.safetensors").unlink()
    assert not store.is_current(target, WANTED)
    assert store.ensure(target, WANTED, _builder(source), progress)
    assert store.is_current(target, WANTED)


def _race(source: str, target: str, barrier: Any, made: Any) -> None:
    barrier.wait(30)
    if store.ensure(Path(target), WANTED, _builder(Path(source)), lambda *_: None):
        with made.get_lock():
            made.value += 1


def test_two_processes_make_it_once(source: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, made = context.Barrier(3), context.Value("i", 0)
    target = tmp_path / "int8"
    racers = [context.Process(target=_race, args=(str(source), str(target), barrier, made)) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert made.value == 1
    assert store.is_current(target, WANTED)


def test_who_waits_is_told(
    source: Path, tmp_path: Path, progress: Report, steps: list[tuple[str, float | None]]
) -> None:
    import fcntl
    import threading

    target = tmp_path / "int8"
    with (tmp_path / ".int8.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        told = threading.Event()

        def tell(message: str, fraction: float | None) -> None:
            steps.append((message, fraction))
            told.set()

        thread = threading.Thread(target=store.ensure, args=(target, WANTED, _builder(source), tell))
        thread.start()
        assert told.wait(20)
        assert "another process" in steps[0][0]
        assert not target.exists()
    thread.join(20)
    assert store.is_current(target, WANTED)


def test_the_fingerprint_follows_the_folder(source: Path) -> None:
    first = store.fingerprint(source)
    assert first == store.fingerprint(source)
    os.utime(source / "model.safetensors", ns=(1, 1))
    second = store.fingerprint(source)
    assert second != first
    (source / "config.json").write_text("{}")
    assert store.fingerprint(source) != second


def test_a_made_checkpoint_is_known_by_its_record(source: Path, tmp_path: Path, progress: Report) -> None:
    target = tmp_path / "fp16"
    store.ensure(target, WANTED, _builder(source), progress)
    first = store.fingerprint(target)
    os.utime(target / "model.safetensors", ns=(1, 1))
    assert store.fingerprint(target) == first
