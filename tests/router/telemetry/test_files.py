"""Room for shared metrics is reserved before it is used; without any, values go on in memory."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from router.telemetry.files import ReservedDict


def full(descriptor: int, offset: int, size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read(path: Path) -> dict[str, float]:
    return {key: value for key, value, _, _ in MmapedDict.read_all_values_from_file(str(path))}


def test_a_file_has_no_holes_however_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    values = ReservedDict(str(path))
    for number in range(5000):
        values.write_value(f"name-{number}", float(number), 0.0)
        if number % 1000 == 0:
            status = path.stat()
            assert status.st_blocks * 512 >= status.st_size
    assert path.stat().st_size > 65536
    assert read(path) == {f"name-{n}": float(n) for n in range(5000)}
    values.close()
    again = ReservedDict(str(path))
    assert again.read_value("name-4999")[0] == 4999.0


def test_a_name_longer_than_a_file(tmp_path: Path) -> None:
    values = ReservedDict(str(tmp_path / "counter_1.db"))
    values.write_value("x" * 300_000, 1.0, 0.0)
    assert read(tmp_path / "counter_1.db") == {"x" * 300_000: 1.0}


def test_on_a_full_disk_values_are_kept_in_memory_and_nobody_sees_an_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    with caplog.at_level(logging.WARNING, logger="bitgear"):
        values = ReservedDict(str(tmp_path / "counter_1.db"))
        for number in range(5000):
            values.write_value(f"name-{number}", float(number), 0.0)
    assert all(values.read_value(f"name-{n}")[0] == n for n in range(5000))
    assert list(tmp_path.iterdir()) == []
    assert len(caplog.records) == 1
    values.close()


def test_a_disk_that_is_full_later_costs_what_comes_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counter_1.db"
    values = ReservedDict(str(path))
    values.write_value("before", 1.0, 0.0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for number in range(5000):
        values.write_value(f"name-{number}", float(number), 0.0)
    assert values.read_value("before")[0] == 1.0
    assert values.read_value("name-4999")[0] == 4999.0
    assert read(path)["before"] == 1.0
    assert path.stat().st_size == 65536
