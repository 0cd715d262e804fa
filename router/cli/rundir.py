"""A private folder for one run: the workers' runtime file, their shared metrics. Gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from backends.process.guard import lives
from backends.processes import PlanError

_PREFIX = "run-"


@contextlib.contextmanager
def run_folder(home: Path) -> Iterator[Path]:
    """A folder (mode 0700) under `home`/run; what killed runs left there is removed first. Raises PlanError."""
    parent = home / "run"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        parent.chmod(0o700)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise PlanError(f"local.home: cannot write in {home}: {error.strerror or error}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdecimal() and not lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


__all__ = ["run_folder"]
