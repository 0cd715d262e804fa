"""One way to open a client, whatever the URL: one server, Sentinels, TLS."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any

import certifi
import pytest
from redis import Redis
from redis.exceptions import RedisError
from typer.testing import CliRunner

from backends.process.guard import die_with_parent
from router.cli.main import app
from router.replay.source import SourceError, from_stream, newest
from router.store.client import open_blocking, open_client
from router.store.valkey import find_binary
from tests.conftest import until

CA = certifi.where()
TLS = f"?ssl_ca_certs={CA}&ssl_check_hostname=false"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def launched() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        with Redis(port=port) as client:
            return bool(client.ping())
    except RedisError:
        return False


async def test_replay_and_feedback_read_behind_sentinels(
    launched: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    binary = str(find_binary())
    master, watch = free_port(), free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(f"port {watch}\nsentinel monitor it 127.0.0.1 {master} 1\n")
    for words in (["--port", str(master), "--save", ""], [str(conf), "--sentinel"]):
        launched.append(
            subprocess.Popen(
                [binary, *words],
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, getpid(), signal.SIGKILL),
            )
        )
    await until(lambda: answers(master) and answers(watch))
    url = f"redis+sentinel://127.0.0.1:{watch}/it"
    with Redis(port=master) as client:
        client.xadd("bitgear:events", {"event": b'{"id": "one"}'})
    assert list(from_stream(url, "bitgear:events")) == [{"id": "one"}]
    assert newest(url, "bitgear:events", 5) == [{"id": "one"}]
    words = ["feedback", "agreement", "g", "--redis", url]
    shown = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert shown.exit_code == 0, shown.output
    assert "0 requests" in shown.output
    with pytest.raises(SourceError):
        newest(f"redis+sentinel://127.0.0.1:{watch}/other", "bitgear:events", 5)


@pytest.mark.parametrize("opened", [open_client, open_blocking])
def test_tls_options_and_logins_reach_sentinels_and_the_master(opened: Any) -> None:
    client = opened(f"rediss+sentinel://u:p@h:1,i:2/it/3{TLS}&sentinel_password=s", timeout_s=2.0)
    pool = client.connection_pool
    secure = {"ssl_ca_certs": CA, "ssl_check_hostname": False}
    wanted = {"username": "u", "password": "p", "db": 3, "socket_timeout": 2.0, **secure}
    assert {name: pool.connection_kwargs.get(name) for name in wanted} == wanted
    assert pool.sentinel_manager.sentinel_kwargs.items() >= {"ssl": True, "password": "s", **secure}.items()
    other = opened("redis+sentinel://u:p@h/it", password="better", timeout_s=1.0)
    assert other.connection_pool.connection_kwargs["password"] == "better"


@pytest.mark.parametrize("opened", [open_client, open_blocking])
def test_one_server_over_tls(opened: Any) -> None:
    pool = opened(f"rediss://h:1/2{TLS}", password="p", timeout_s=2.0).connection_pool
    found = pool.connection_kwargs
    assert (found["ssl_ca_certs"], found["ssl_check_hostname"], found["db"], found["password"]) == (
        CA,
        False,
        2,
        "p",
    )
