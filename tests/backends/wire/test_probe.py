"""A replica is proved ready by a real completion and by nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from backends.wire import Pool, UpstreamError, probe
from tests.support.upstream import Close, Hang, ScriptedUpstream, Send, Step, sends
from tests.support.wire import DONE, ChatWire, crlf, event, json_response, response, split

WIRE = ChatWire()


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(max_model_len=777) as server:
        yield server


async def test_it_tells_lengths_and_speed(up: ScriptedUpstream) -> None:
    result = await probe(Pool(up.url), "m", [(b"authorization", b"Bearer k")], 5)
    assert result.max_model_len == 777
    assert result.prompt_tokens == 13
    # The loop's clock counts milliseconds.
    assert 0 <= result.ttft_s < 1
    assert result.itl_s is not None
    assert [e.target for e in up.side] == ["/v1/models", "/v1/chat/completions"]
    assert {e.header("authorization") for e in up.side} == {"Bearer k"}


async def test_it_reads_any_cut_and_line_end(up: ScriptedUpstream) -> None:
    wire = b"".join(response([crlf(e) for e in WIRE.stream(["a", "b"], usage=True)]))
    up.probe_answer = lambda _: sends(split(wire, range(len(wire))))
    assert (await probe(Pool(up.url), "m", [], 5)).prompt_tokens == 13


@pytest.mark.parametrize(
    "script",
    [
        [Send(json_response(b'{"error":{"message":"boom"}}', 500))],
        [Send(json_response(b"{}", 404))],
        [Send(json_response(WIRE.answer()))],
        sends(response([WIRE.role(), WIRE.error()])),
        sends(response([WIRE.role(), DONE])),
        sends(response([WIRE.content("a")])),
        sends(response([event("[]"), DONE])),
        sends(response([event("not json"), DONE])),
        sends(response([event('{"choices":[1]}'), DONE])),
        sends(response([event('{"choices":[{"delta":"x"}]}'), DONE])),
        sends(response([event('{"choices":{"a":1}}'), DONE])),
        sends(response([event('{"choices":[],"usage":[1]}'), DONE])),
        sends(response([event('{"choices":[],"usage":"x"}'), DONE])),
        sends([*response([WIRE.role()])[:-1], b"1000000\r\n", *[b"x" * 1_000_000] * 16]),
        [*sends(response([WIRE.content("a")])[:-1]), Close()],
        [Close()],
    ],
)
async def test_anything_but_a_completion_is_an_error_of_the_upstream(up: ScriptedUpstream, script: list[Step]) -> None:
    up.probe_answer = lambda _: script
    pool = Pool(up.url)
    with pytest.raises(UpstreamError):
        await probe(pool, "m", [], 5)


async def test_odd_usage_of_a_real_completion_is_passed_over(up: ScriptedUpstream) -> None:
    up.probe_answer = lambda _: sends(
        response([WIRE.content("a"), event('{"choices":[],"usage":{"prompt_tokens":"many"}}'), DONE])
    )
    assert (await probe(Pool(up.url), "m", [], 5)).prompt_tokens == 0


async def test_its_time_is_limited(up: ScriptedUpstream) -> None:
    up.probe_answer = lambda _: [Hang()]
    with pytest.raises(UpstreamError) as caught:
        await probe(Pool(up.url), "m", [], 0.1)
    assert caught.value.failure.endswith("timeout")
    await up.until(lambda: up.open_connections <= 1)
