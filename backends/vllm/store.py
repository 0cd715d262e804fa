"""Made checkpoints on disk: whole or not there, made once by however many ask, remade when their source has changed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backends.vllm.headers import TensorFileError, files

RECORD = "bitgear.json"
FORMAT = 1
"""Raised when recipes change what they make: older checkpoints are then made again."""

Progress = Callable[[str, float | None], None]


def ensure(
    target: Path, wanted: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any]], progress: Progress
) -> bool:
    """Make `target` with `build` unless it is there and right; True if it was made.

    `wanted` says what the checkpoint must be made from and how (plain JSON values); it goes into `bitgear.json` with
    what `build` gives back, and a checkpoint whose record differs is made anew. `build` fills an empty folder; only when
    it has returned does the folder get its name. A second process that wants the same waits for the first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target, progress):
        if is_current(target, wanted):
            return False
        _remove_leftovers(target)
        partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
        partial.mkdir()
        try:
            details = build(partial)
            record = {"format": FORMAT, "wanted": dict(wanted), "made": {**details, "date": _now()}}
            (partial / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True))
            _sync(partial)
            _replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return True


def is_current(target: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is there, whole, and made from what is wanted now."""
    record = read_record(target)
    if record is None or record.get("format") != FORMAT or record.get("wanted") != dict(wanted):
        return False
    try:
        return bool(files(target))
    except TensorFileError:
        return False


def read_record(target: Path) -> dict[str, Any] | None:
    """The record of a made checkpoint; None where there is none, or it cannot be read."""
    try:
        record = json.loads((target / RECORD).read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def fingerprint(folder: Path) -> str:
    """A hash that changes when a checkpoint folder does, without reading all of it.

    For a made checkpoint its record stands for it. Otherwise: the configuration, and each weight file's name, size,
    time of change and header.
    """
    digest = hashlib.sha256()
    record = folder / RECORD
    if record.is_file():
        digest.update(record.read_bytes())
        return digest.hexdigest()
    digest.update((folder / "config.json").read_bytes())
    for file in files(folder):
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}".encode())
        with file.open("rb") as handle:
            digest.update(handle.read(1 << 20))
    return digest.hexdigest()


@contextmanager
def _lock(target: Path, progress: Progress) -> Iterator[None]:
    """Hold the target's lock file; the kernel frees it when its holder dies."""
    with target.with_name(f".{target.name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting: another process makes {target}", None)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove_leftovers(target: Path) -> None:
    """Half-made folders of processes that died; under the lock nobody works on them."""
    for pattern in (f".{target.name}.partial-*", f".{target.name}.old-*"):
        for folder in target.parent.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)


def _replace(partial: Path, target: Path) -> None:
    """Give the finished folder its name; servers that have the old one's files open keep them."""
    if target.exists():
        old = target.with_name(f".{target.name}.old-{os.getpid()}")
        target.rename(old)
        partial.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        partial.rename(target)
    _sync_path(target.parent)


def _sync(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _sync_path(path)


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
