"""The private server: answers on its socket alone, keeps its state, ends with its parent, survives what may happen."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis
from redis.exceptions import ResponseError

from router.store.valkey import PrivateValkey, ValkeyError, find_binary


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state")
    yield server
    server.stop()


def until(condition: Callable[[], bool], deadline_s: float = 60) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def fill(client: Redis) -> None:
    for number in range(200):
        client.set(f"lasting{number}", b"x" * 100_000)


def test_answers_on_a_private_socket_and_on_no_port(server: PrivateValkey) -> None:
    url = server.start()
    assert url.startswith("unix://")
    path = Path(url.removeprefix("unix://"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with Redis.from_url(url) as client:
        assert client.ping()
        assert client.config_get("maxmemory")["maxmemory"] == str(256 << 20)
    assert server.pid is not None
    listening = [c for c in psutil.Process(server.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert listening == []


def test_state_survives_an_ordinary_stop(server: PrivateValkey) -> None:
    with Redis.from_url(server.start()) as client:
        client.set("kept", "yes")
    server.stop()
    assert not server.running
    with Redis.from_url(server.start()) as client:
        assert client.get("kept") == b"yes"


def test_restart_after_its_death_has_the_same_url(server: PrivateValkey) -> None:
    url = server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not server.running)
    assert server.start() == url
    with Redis.from_url(url) as client:
        assert client.ping()


def test_start_twice_is_harmless(server: PrivateValkey) -> None:
    url = server.start()
    pid = server.pid
    assert server.start() == url
    assert server.pid == pid


def test_second_server_with_the_same_folder_keeps_to_itself(server: PrivateValkey, tmp_path: Path) -> None:
    second = PrivateValkey(tmp_path / "state")
    try:
        with Redis.from_url(server.start()) as one, Redis.from_url(second.start()) as two:
            one.set("whose", "first")
            two.set("whose", "second")
    finally:
        second.stop()
    server.stop()
    with Redis.from_url(server.start()) as client:
        assert client.get("whose") == b"first"


def test_broken_snapshot_is_moved_aside(
    server: PrivateValkey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "valkey.rdb").write_bytes(b"not a snapshot")
    with Redis.from_url(server.start()) as client:
        assert client.dbsize() == 0
    assert (folder / "valkey.broken").read_bytes() == b"not a snapshot"
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_full_memory_is_an_error_for_lasting_keys_not_for_cached_ones(tmp_path: Path) -> None:
    server = PrivateValkey(tmp_path / "state", max_memory_mib=8)
    try:
        with Redis.from_url(server.start()) as client:
            for number in range(200):
                client.set(f"cached{number}", b"x" * 100_000, ex=100)
            assert 0 < client.dbsize() < 200
            with pytest.raises(ResponseError, match="maxmemory"):
                fill(client)
    finally:
        server.stop()


def test_stop_ends_even_a_stopped_server(server: PrivateValkey) -> None:
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop(timeout_s=5)
    assert not alive(pid)


def test_stop_without_start_is_harmless(server: PrivateValkey) -> None:
    server.stop()
    assert not server.running
    with pytest.raises(ValkeyError, match="not started"):
        _ = server.url


def test_long_folder_names_work(tmp_path: Path) -> None:
    server = PrivateValkey(tmp_path / ("x" * 100) / ("y" * 100))
    try:
        assert server.start().startswith("unix://")
    finally:
        server.stop()


def test_a_binary_that_fails_gives_its_last_words(tmp_path: Path) -> None:
    binary = tmp_path / "fails"
    binary.write_text("#!/bin/sh\necho 'no such luck'\nexit 3\n")
    binary.chmod(0o755)
    server = PrivateValkey(tmp_path / "state", binary=binary)
    with pytest.raises(ValkeyError, match=r"code 3: no such luck"):
        server.start()
    server.stop()


def test_a_binary_that_never_answers(tmp_path: Path) -> None:
    binary = tmp_path / "mute"
    binary.write_text("#!/bin/sh\nexec sleep 1000\n")
    binary.chmod(0o755)
    server = PrivateValkey(tmp_path / "state", binary=binary)
    with pytest.raises(ValkeyError, match="no answer in time"):
        server.start(timeout_s=0.2)
    assert not server.running


def test_ends_with_its_parent_even_after_sigkill(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from router.store.valkey import PrivateValkey\n"
        "s = PrivateValkey(pathlib.Path(sys.argv[1])); print(s.start(), s.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "state")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        url, number = parent.stdout.readline().split()
        pid, folder = int(number), Path(url.removeprefix("unix://")).parent
        assert alive(pid)
        # A living owner's folder stays whoever starts beside it, a killed one's goes with the next start.
        beside = PrivateValkey(tmp_path / "beside")
        beside.start()
        beside.stop()
        assert folder.exists()
        parent.kill()
        until(lambda: not alive(pid))
    assert folder.exists()
    after = PrivateValkey(tmp_path / "after")
    after.start()
    after.stop()
    assert not folder.exists()


def test_a_folder_whose_server_answers_stays_whoever_its_owner_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of another container that shares the folder of temporary files: its process ids mean nothing here.
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    temporary = tempfile.mkdtemp()
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    one, other = PrivateValkey(tmp_path / "one"), PrivateValkey(tmp_path / "other")
    try:
        one.start()
        folder = Path(tempfile.mkdtemp(prefix=f"bitgear-{ended.pid}-"))
        (folder / "valkey.sock").symlink_to(one.url.removeprefix("unix://"))
        other.start()
        assert folder.exists()
        one.stop()
        other.stop()
        # Not one of these, though it is called so.
        diary = Path(temporary) / f"bitgear-{ended.pid}-diary"
        diary.mkdir()
        (diary / "today").write_text("fine weather")
        other.start()
        assert not folder.exists()
        assert (diary / "today").read_text() == "fine weather"
    finally:
        one.stop()
        other.stop()
        shutil.rmtree(temporary, ignore_errors=True)


def test_binary_is_found() -> None:
    assert os.access(find_binary(), os.X_OK)


def test_no_binary_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValkeyError, match=r"redis\.url"):
        find_binary()
