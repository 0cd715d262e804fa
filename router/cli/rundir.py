"""A private folder for one run: the workers' runtime file, their shared metrics. Gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "run-"


@contextlib.contextmanager
def run_folder(home: Path) -> Iterator[Path]:
    """A folder (mode 0700) under `home`/run; what killed runs left there is removed first."""
    parent = home / "run"
    parent.mkdir(parents=True, exist_ok=True)
    parent.chmod(0o700)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


__all__ = ["run_folder"]
