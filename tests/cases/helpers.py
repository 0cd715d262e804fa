"""What the cases share: the wire of group `g`, the figures a worker shows, waiting until it is idle."""

from __future__ import annotations

import asyncio
import os
import re
import resource
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Close, Exchange, Script, ScriptedUpstream, Step, sends
from tests.support.wire import DONE, ChatWire, CompletionWire, Framing

Start = Callable[..., Awaitable[Any]]
"""The `bitgear` fixture."""

WIRE = ChatWire("g")
TEXT_WIRE = CompletionWire("g")
CHAT_PATH = "/v1/chat/completions"
UNBREAKABLE = {"breaker": {"failures": 1_000_000}}
"""For tests in which thousands of answers fail on purpose."""

SHORT = [WIRE.role(), WIRE.content("你😀"), WIRE.content("b", "stop")]
"""A realistic answer, short enough to be cut at each of its bytes."""
USAGE = WIRE.usage(13, 2)
WHOLE = [*SHORT, USAGE, DONE]


def ask(**more: Any) -> dict[str, Any]:
    """A streamed chat request to group `g`."""
    return chat(model="g", stream=True, **more)


async def stream(url: str, timeout: float = 60.0, **more: Any) -> Answer:
    """The whole answer to a streamed chat request."""
    return await fetch(url, CHAT_PATH, ask(**more), timeout=timeout)


def inflight(gear: Any) -> int:
    """Requests that the worker has in flight, from its own books."""
    replicas = [r for v in gear.worker.fleet.variants() for r in v.replicas]
    return int(gear.worker.app.inflight + sum(r.inflight for r in replicas))


async def settled(gear: Any, *upstreams: ScriptedUpstream, timeout: float = 60.0) -> None:
    """Returns once neither the worker nor an upstream has a request in flight. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while inflight(gear) or any(u.running for u in upstreams):
            await asyncio.sleep(0.002)


async def metric(gear: Any, name: str) -> float:
    """The sum over labels of one metric of the admin address."""
    text = (await fetch(gear.admin_url, "/metrics")).body.decode()
    return sum(float(v) for v in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))


def in_turn(scripts: Sequence[Script], last: Script, *upstreams: ScriptedUpstream) -> list[Exchange]:
    """Whichever upstream is asked first plays the first script, and so on; then all play `last`.

    The list that comes back holds the exchanges in the order in which they came.
    """
    seen: list[Exchange] = []

    def choose(exchange: Exchange) -> Script:
        seen.append(exchange)
        return scripts[len(seen) - 1] if len(seen) <= len(scripts) else last

    for upstream in upstreams:
        upstream.choose = choose
    return seen


def open_files() -> int:
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def rss_mib() -> float:
    """Resident memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def leave_after(client: RawClient, answer: Answer, found: Callable[[bytes], bool]) -> None:
    """Reads until the body so far satisfies `found`."""
    async for _ in client.pieces(answer):
        if found(answer.body):
            return


def script(wire: Iterable[bytes], framing: Framing = "chunked") -> list[Step]:
    """Sends these pieces, then closes where that ends the body."""
    return [*sends(wire), *([Close()] if framing == "close" else [])]


async def each(url: str, steps: Iterable[list[Step]], up: ScriptedUpstream, **more: Any) -> list[Answer]:
    """One streamed request after the other on one connection, each answered by the next script."""
    answers = []
    async with RawClient(url) as client:
        for one in steps:
            up.enqueue(one)
            await client.request("POST", CHAT_PATH, ask(**more))
            answers.append(await client.answer())
    return answers
