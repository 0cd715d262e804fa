"""The folder of one run: private, gone at the end, and those of killed runs swept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from backends.processes import PlanError
from router.cli.rundir import run_folder


def test_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with run_folder(tmp_path) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        (folder / "x").write_text("")
    assert not folder.exists()


def test_sweeps_what_dead_runs_left_and_only_that(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dead = run / "run-4194304999-abc"
    living = run / f"run-{os.getppid()}-abc"
    other = run / "kept"
    for folder in (dead, living, other):
        folder.mkdir(parents=True)
    with run_folder(tmp_path):
        pass
    assert not dead.exists()
    assert living.exists()
    assert other.exists()


def test_a_home_that_is_none_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match=r"local\.home"), run_folder(tmp_path / "file"):
        pass
