"""A key's tokens a minute on a real worker: what each request costs it, and what a key in debt hears."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from router.keys.allowance import Allowance
from router.keys.pace import Pace
from router.keys.record import digest
from tests.cases.helpers import CHAT_PATH, WIRE, ask, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Close, Hang, ScriptedUpstream, Send, Wait, sends
from tests.support.wire import error_body, json_response, response

KEY = "sk-bg-test"
HEADERS = [("authorization", f"Bearer {KEY}")]
PLAIN = [Send(json_response(WIRE.answer("four", 13, 5), headers=[("x-ratelimit-remaining-tokens", "1")]))]
VECTORS = b'{"object":"list","data":[],"model":"g","usage":{"prompt_tokens":7,"total_tokens":7}}'
Serve = Callable[..., Awaitable[Bitgear]]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is taken (and given back, below 0) of tokens, in order."""
    taken: list[float] = []
    spend = Allowance.spend_tokens

    def noted(self: Allowance, amount: float, pace: Pace, now: float) -> None:
        taken.append(amount)
        spend(self, amount, pace, now)

    monkeypatch.setattr(Allowance, "spend_tokens", noted)
    return taken


@pytest.fixture
def serve(bitgear: Serve, up: ScriptedUpstream, redis_url: str) -> Serve:
    """A worker whose one key may use so many tokens a minute."""

    async def start(tokens: int = 10**9, **limits: float) -> Bitgear:
        keys = {"app": {"sha256": digest(KEY.encode()), "tokens_per_minute": tokens, **limits}}
        gear = await bitgear({"fp16": up.url}, config={"keys": keys, "redis": {"timeout_s": 5.0}}, redis_url=redis_url)
        await until(lambda: gear.worker.caching.store.up and gear.worker._limits._pace.shared)
        return gear

    return start


async def post(gear: Bitgear, body: dict[str, Any], path: str = CHAT_PATH) -> Answer:
    answer = await fetch(gear.url, path, body, HEADERS)
    await settled(gear)
    return answer


def limits(answer: Answer) -> list[str]:
    return [v for n, v in answer.head.headers if n.startswith("x-ratelimit-")]


async def test_a_request_larger_than_the_limit_is_served_and_the_next_waits_until_it_is_paid(
    serve: Serve, up: ScriptedUpstream
) -> None:
    # One token at once, and one more every ten seconds.
    gear = await serve(6)
    up.always(PLAIN)
    first = await post(gear, chat(model="g"))
    assert first.status == 200
    # The worker's own, and the upstream's never.
    assert limits(first)[:2] == ["6", "0"]
    assert len(limits(first)) == 3
    client = openai.AsyncOpenAI(base_url=gear.url + "/v1", api_key=KEY, max_retries=0)
    with pytest.raises(openai.RateLimitError) as refused:
        await client.chat.completions.create(model="g", messages=[{"role": "user", "content": "Hello"}])
    assert refused.value.code == "rate_limit_exceeded"
    assert "6 tokens a minute" in str(refused.value)
    # 18 tokens less the one that there was, less what came back while the test ran.
    assert 150 <= int(refused.value.response.headers["retry-after"]) <= 170
    assert refused.value.response.headers["x-ratelimit-limit-tokens"] == "6"
    assert refused.value.response.headers["x-ratelimit-reset-tokens"].startswith(("2m", "3m"))
    assert len(up.exchanges) == 1
    # What computes nothing is served meanwhile.
    assert [m.id for m in (await client.models.list()).data] == ["g", "g@fp16"]
    assert (await post(gear, chat(model="g"), "/v1/route")).status == 200
    up.always([Send(json_response(b'{"count":1,"tokens":[1]}'))])
    assert (await post(gear, {"model": "g", "prompt": "Hello"}, "/tokenize")).status == 200
    assert (await post(gear, {"model": "g@fp16", "input": "Hello"}, "/v1/audio/speech")).status == 429
    await client.close()


async def test_answers_of_the_cache_cost_nothing(serve: Serve, up: ScriptedUpstream, costs: list[float]) -> None:
    gear = await serve()
    go_on = asyncio.Event()
    up.always([Wait(go_on), *PLAIN])
    body = chat(model="g", temperature=0)
    both = [asyncio.create_task(fetch(gear.url, CHAT_PATH, body, HEADERS)) for _ in range(2)]
    await until(lambda: gear.worker.app.inflight == 2 and up.running == 1)
    # One of them waits for the other's answer.
    await until(lambda: len(costs) == 2)
    assert all(taken > 100 for taken in costs)
    go_on.set()
    for answer in await asyncio.gather(*both):
        assert answer.status == 200
    await settled(gear)
    assert sum(costs) == 18
    assert ((await post(gear, body)).head.get("x-bitgear-cache") or "").startswith("hit")
    assert sum(costs) == 18
    assert len(up.exchanges) == 1


async def test_what_is_counted_when_it_ends_well(serve: Serve, up: ScriptedUpstream, costs: list[float]) -> None:
    gear = await serve()
    up.enqueue(sends(response(WIRE.stream(["Hel", "lo", "!"], usage=True))))
    assert (await post(gear, ask())).events()[-1] == b"[DONE]"
    assert sum(costs) == 16
    costs.clear()
    up.enqueue([Send(json_response(VECTORS))])
    assert (await post(gear, {"model": "g", "input": "Hello, how are you?"}, "/v1/embeddings")).status == 200
    assert sum(costs) == 7
    # Of vectors only the prompt is taken before.
    assert 0 < costs[0] < 20


async def test_what_is_counted_of_what_does_not(serve: Serve, up: ScriptedUpstream, costs: list[float]) -> None:
    gear = await serve()
    head, role, *tokens = response(WIRE.stream([str(n) for n in range(9)]))

    async def cut(count: int) -> float:
        """Return the cost of a stream that its client leaves after so many tokens."""
        costs.clear()
        up.enqueue([*sends([head, role, *tokens[:count]]), Hang()])
        async with RawClient(gear.url) as client:
            await client.request("POST", CHAT_PATH, ask(), HEADERS)
            await client.read_until(lambda body: body.count(b"data:") > count)
        await settled(gear, up)
        return sum(costs)

    few, many = await cut(1), await cut(8)
    assert many - few == 7
    assert 2 <= few <= 6
    costs.clear()
    up.enqueue([*sends([head, role, *tokens[:8]]), Close()])
    assert b"stream_broken" in (await post(gear, ask())).body
    assert sum(costs) == many
    # Nothing came of it.
    costs.clear()
    up.always([Send(json_response(error_body("broken", code=500), 500))])
    assert (await post(gear, chat(model="g"))).status == 502
    up.always([Send(json_response(error_body("no"), 400))])
    assert (await post(gear, chat(model="g"))).status == 400
    assert sum(costs) == 0
    assert len(costs) == 4
    # A plain answer that nobody waited for: nobody knows what it came to.
    costs.clear()
    up.always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, chat(model="g", max_tokens=30), HEADERS)
        await until(lambda: up.running == 1)
        client.close()
    await settled(gear, up)
    assert 31 <= sum(costs) <= 36


async def test_a_debt_made_at_one_worker_is_refused_at_another(serve: Serve, up: ScriptedUpstream) -> None:
    one, other = await serve(6), await serve(6)
    up.always(PLAIN)
    assert (await post(one, chat(model="g"))).status == 200
    # It has heard nothing yet: one request is let through, and tells it.
    assert (await post(other, chat(model="g"))).status == 200

    async def wait_s() -> int:
        answer = await post(other, chat(model="g"))
        assert answer.status == 429
        return int(answer.head.get("retry-after") or 0)

    await until(lambda: not other.worker._limits._pace._spent)
    async with asyncio.timeout(60):
        # Both requests' tokens are owed, whoever is asked: 36 less the one that there was.
        while not 330 <= await wait_s() <= 350:
            await asyncio.sleep(0.05)
    assert len(up.exchanges) == 2


async def test_many_at_once_are_held_back_by_what_they_are_expected_to_cost(serve: Serve, up: ScriptedUpstream) -> None:
    gear = await serve(120)
    go_on = asyncio.Event()
    up.always([Wait(go_on), *PLAIN])
    body = chat(model="g", max_tokens=200)
    asked = [asyncio.create_task(fetch(gear.url, CHAT_PATH, body, HEADERS)) for _ in range(20)]
    await until(lambda: sum(t.done() for t in asked) == 19)
    go_on.set()
    assert sorted(a.status for a in await asyncio.gather(*asked)) == [200] + [429] * 19
    await settled(gear)
    # It cost 18 of the 20 that there were: less than expected, and nothing is owed.
    assert (await post(gear, chat(model="g"))).status == 200
