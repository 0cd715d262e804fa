"""Redis behind Sentinels, with TLS, and with users of few rights: real servers, and one that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from backends.process.guard import die_with_parent
from router.cache.cluster import parse_nodes, slot_of
from router.cache.sentinel import NoMaster, parse_sentinels
from router.store.client import open_client
from router.store.valkey import find_binary
from tests.cases.helpers import WIRE, Start
from tests.cases.test_cache import ask, told
from tests.conftest import Bitgear, until
from tests.support.client import fetch
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import json_response


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    """Starts a server with these arguments; all end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        process = subprocess.Popen(
            [str(find_binary()), *arguments, "--dir", str(folder), "--save", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, getpid(), signal.SIGKILL),
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def answers(port: int, **options: Any) -> bool:
    with contextlib.suppress(RedisError, OSError), Redis(port=port, socket_timeout=1, **options) as client:
        return bool(client.ping())
    return False


def replicates(port: int) -> bool:
    with contextlib.suppress(RedisError), Redis(port=port) as client:
        return client.info("replication").get("master_link_status") == "up"
    return False


async def test_a_failover_behind_sentinels_is_followed(
    bitgear: Start, up: ScriptedUpstream, launch: Any, tmp_path: Path
) -> None:
    first, second, watch = free_port(), free_port(), free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"port {watch}\nsentinel monitor cache 127.0.0.1 {first} 1\nsentinel down-after-milliseconds cache 400\n"
        "sentinel failover-timeout cache 3000\n"
    )
    fast = ("--repl-diskless-sync-delay", "0")
    master = launch("--port", str(first), *fast)
    await until(lambda: answers(first))
    launch("--port", str(second), "--replicaof", f"127.0.0.1 {first}", *fast)
    await until(lambda: replicates(second))
    launch(str(conf), "--sentinel")
    await until(lambda: answers(watch))
    with Redis(port=watch) as sentinel:
        await until(lambda: len(sentinel.sentinel_slaves("cache")) == 1)
    url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{watch}/cache"
    gear: Bitgear = await bitgear({"fp16": up.url}, redis_url=url, config={"cache": {"timeout_ms": 1000}})
    store = gear.worker.caching.store
    await until(lambda: store.up)
    up.always([Send(json_response(WIRE.answer("four")))])
    assert [told(await ask(gear)) for _ in range(2)] == ["miss", "hit"]
    with Redis(port=second) as replica:
        await until(lambda: replica.dbsize() > 0)
    master.kill()
    master.wait()
    await until(lambda: not store.up)
    assert (await ask(gear, text="meanwhile")).status == 200
    # A sentinel that was held up for 2 s only looks on for the next 30 s.
    await until(lambda: store.up, 180)
    # The promoted replica has the entries, and takes new ones.
    address = await store.locate()
    assert address is not None
    assert address.port == second
    assert told(await ask(gear)) == "hit"
    assert [told(await ask(gear, text="after")) for _ in range(2)] == ["miss", "hit"]
    # The events' client finds the same server.
    client = open_client(url, timeout_s=2)
    assert (await client.info("replication"))["role"] == "master"
    await client.aclose(close_connection_pool=True)


async def test_no_sentinel_that_answers() -> None:
    with pytest.raises(NoMaster, match=r"no master: 127\.0\.0\.1:1: "):
        await parse_sentinels("redis+sentinel://127.0.0.1:1/cache").find(1)


def test_sentinel_urls() -> None:
    found = parse_sentinels("redis+sentinel://u:p%40@one,[::1]:7/my%20set/3?sentinel_password=q")
    assert [(a.host, a.port, a.password) for a in found.addresses] == [("one", 26379, "q"), ("::1", 7, "q")]
    assert found.service == "my set"
    assert found.server.greeting() == [("AUTH", "u", "p@"), ("SELECT", 3)]
    assert parse_sentinels("rediss+sentinel://one/s").addresses[0].tls is not None
    for broken in ("redis+sentinel://one", "redis+sentinel:///s", "redis+sentinel://one:x/s"):
        with pytest.raises(ValueError, match=r"Sentinel URL|Port"):
            parse_sentinels(broken)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate for 127.0.0.1 that signs itself."""
    x509 = pytest.importorskip("cryptography.x509", reason="the extra `encryption`")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    key_file, made_file = folder / "key.pem", folder / "cert.pem"
    plain = serialization.NoEncryption()
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )
    made_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return key_file, made_file


async def test_tls_with_the_servers_own_certificate(
    bitgear: Start, up: ScriptedUpstream, launch: Any, tmp_path: Path
) -> None:
    key, made = certificate(tmp_path)
    plain, context = free_port(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    launch("--port", str(plain))
    await until(lambda: answers(plain))

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The server's own binary may come without TLS: this is what stunnel does.
        inner, outer = await asyncio.open_connection("127.0.0.1", plain)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(_pass(reader, outer), _pass(inner, writer))

    ends = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    port = ends.sockets[0].getsockname()[1]
    gear: Bitgear = await bitgear({"fp16": up.url}, redis_url=f"rediss://127.0.0.1:{port}?ssl_ca_certs={made}")
    await until(lambda: gear.worker.caching.store.up)
    up.always([Send(json_response(WIRE.answer("four")))])
    assert [told(await ask(gear)) for _ in range(2)] == ["miss", "hit"]
    # Without its certificate the server is a stranger.
    other: Bitgear = await bitgear({"fp16": up.url}, redis_url=f"rediss://127.0.0.1:{port}")
    await until(lambda: other.worker.caching.store.state == "down")
    assert told(await ask(other)) == "bypass"
    ends.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_a_user_of_few_rights(bitgear: Start, up: ScriptedUpstream, launch: Any, tmp_path: Path) -> None:
    port = free_port()
    conf = tmp_path / "valkey.conf"
    conf.write_text(f"port {port}\nuser default off\nuser gear on >word ~bitgear:* &* +@all -@scripting\n")
    launch(str(conf))
    await until(lambda: answers(port, username="gear", password="word"))
    gear: Bitgear = await bitgear({"fp16": up.url}, redis_url=f"redis://gear:word@127.0.0.1:{port}")
    await until(lambda: gear.worker.caching.store.up)
    up.always([Send(json_response(WIRE.answer("four")))])
    # Without scripts: entries, but no lease.
    assert [told(await ask(gear)) for _ in range(2)] == ["miss", "hit"]
    with Redis(port=port, username="gear", password="word") as client:
        assert client.keys("bitgear:l1:*") == []
    refused: Bitgear = await bitgear({"fp16": up.url}, redis_url=f"redis://gear:wrong@127.0.0.1:{port}")
    await until(lambda: refused.worker.caching.store.state == "down")
    assert told(await ask(refused)) == "bypass"


@pytest.fixture
async def cluster(launch: Any) -> list[int]:
    """Three masters that share all slots; their ports."""
    ports = [free_port() for _ in range(3)]
    for port in ports:
        # The bus's port would be 10,000 higher, which may be none.
        own = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "15000")
        launch("--port", str(port), *own, "--cluster-require-full-coverage", "no")
    for n, port in enumerate(ports):
        await until(lambda port=port: answers(port))  # type: ignore[misc]
        with Redis(port=port) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", n * 5461, 16383 if n == 2 else n * 5461 + 5460)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
    with Redis(port=ports[0]) as client:
        for port in ports[1:]:
            bus = buses(port)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
    for port in ports:
        # One that knows all slots may still refuse every command for the time that a cluster takes to agree.
        await until(lambda port=port: slots_known(port) == 16384 and serves(port))  # type: ignore[misc]
    return ports


def buses(port: int) -> int:
    with Redis(port=port) as client:
        return int(client.config_get("cluster-port")["cluster-port"])


def slots_known(port: int) -> int:
    with Redis(port=port) as client:
        rows = client.execute_command("CLUSTER", "SLOTS")
    return sum(int(row[1]) - int(row[0]) + 1 for row in (rows.values() if isinstance(rows, dict) else rows))


def serves(port: int) -> bool:
    with Redis(port=port) as client:
        told = client.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in bytes(told)


def keys_at(port: int) -> int:
    with Redis(port=port) as client:
        return int(client.dbsize())


async def test_a_cluster(bitgear: Start, redis_url: str, up: ScriptedUpstream, launch: Any, cluster: list[int]) -> None:
    url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{cluster[1]}"
    config = {"cache": {"url": url, "timeout_ms": 1000}}
    gear: Bitgear = await bitgear({"fp16": up.url}, redis_url=redis_url, config=config)
    store = gear.worker.caching.store
    await until(lambda: store.state == "up" and all(n.up for n in store._nodes.values()))  # type: ignore[attr-defined]
    up.always([Send(json_response(WIRE.answer("four")))])
    texts = [f"question {n}" for n in range(12)]
    assert [told(await ask(gear, text=t)) for t in texts] == ["miss"] * 12
    assert [told(await ask(gear, text=t)) for t in texts] == ["hit"] * 12
    assert [keys_at(port) > 0 for port in cluster] == [True] * 3
    assert len(up.exchanges) == 12
    # Most of one node's slots go to another one: a miss or two, then they are found there.
    ids = {}
    for port in cluster:
        with Redis(port=port) as client:
            ids[port] = client.execute_command("CLUSTER", "MYID").decode()
    with Redis(port=cluster[0]) as client:
        client.flushall()
    for port in cluster[::-1]:
        with Redis(port=port) as client, client.pipeline(transaction=False) as pipe:
            for slot in range(5000):
                pipe.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[cluster[1]])
            pipe.execute()
    # Each finds the new place at once or after one look at the map.
    assert (await ask(gear, text=texts[0])).status == 200
    for text in texts:
        await ask(gear, text=text)
    await until(lambda: store._slots[0] is store._slots[6000] is not store._slots[5000])  # type: ignore[attr-defined]
    for text in texts:
        await ask(gear, text=text)
    assert [told(await ask(gear, text=t)) for t in texts] == ["hit"] * 12
    purged = await fetch(gear.admin_url, "/admin/cache/purge", {"everything": True})
    assert purged.json() == {"purged": 12}


def test_slots_are_rediss_own() -> None:
    """From the specification: the CRC of 123456789 is 0x31C3; only a tag that is not empty counts."""
    assert slot_of("123456789") == 0x31C3 % 16384
    assert slot_of("bitgear:c1:g:t:{abc}") == slot_of("bitgear:l1:{abc}") == slot_of("abc")
    assert slot_of("{}abc") != slot_of("abc")
    assert [(a.host, a.port) for a in parse_nodes("redis+cluster://u:p@one:1,two")] == [("one", 1), ("two", 6379)]
    with pytest.raises(ValueError, match="one database"):
        parse_nodes("redis+cluster://one/1")
