"""Cases 5 to 9 on a real Valkey server: what shares an answer and what never does, and in which form it comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI
from redis import Redis

from tests.cases.helpers import CHAT_PATH, DONE, TEXT_WIRE, USAGE, WIRE, Start, metric, script, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Hang, ScriptedUpstream, Send, Step, Wait
from tests.support.wire import error_body, event, json_response, response

PLAIN: list[Step] = [Send(json_response(WIRE.answer("four")))]
STREAM: list[Step] = script(response([WIRE.role(), WIRE.content("fo"), WIRE.content("ur", "stop"), USAGE, DONE]))
BOB = [("authorization", "Bearer sk-bob")]


async def started(start: Start, redis_url: str, urls: dict[str, str], **options: Any) -> Bitgear:
    gear: Bitgear = await start(urls, redis_url=redis_url, **options)
    await until(lambda: gear.worker.caching.store.up)
    return gear


def question(text: str = "2+2?", **more: Any) -> dict[str, Any]:
    return chat(text, **{"model": "g", "temperature": 0, **more})


async def ask(gear: Bitgear, headers: list[tuple[str, str]] | None = None, **more: Any) -> Answer:
    answer = await fetch(gear.url, CHAT_PATH, question(**more), headers or [])
    # A write goes out after the answer: the next question on another connection must not overtake it.
    await settled(gear)
    return answer


def told(answer: Answer) -> str:
    return (answer.head.get("x-bitgear-cache") or "none").split(";")[0]


def text_of(answer: Answer) -> str:
    chunks = [json.loads(e) for e in answer.events() if e != b"[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


def left(gear: Bitgear) -> int:
    return gear.worker.caching.flights.orphans


async def test_the_same_question_is_asked_upstream_once(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    first, second = await ask(gear), await ask(gear)
    assert [told(first), told(second)] == ["miss", "hit"]
    assert second.body == first.body
    age = second.head.get("age") or ""
    assert 0 <= int(age) < 60
    assert second.head.get("x-bitgear-cache") == f"hit; age={age}"
    assert "reason=cached" in (second.head.get("x-bitgear-decision") or "")
    assert len(up.exchanges) == 1
    assert await metric(gear, "bitgear_cache_tokens_saved_total") == 18
    assert await metric(gear, "bitgear_completion_tokens_total") == 5


async def test_case_5_no_hit_across_models_pins_tenants_or_system_prompts(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url, "int8": up.url})
    up.always(PLAIN)
    system = {"role": "system", "content": "Be brief."}
    other = {"role": "system", "content": "Be long."}
    user = {"role": "user", "content": "2+2?"}
    different: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
        ({}, []),
        ({"model": "g@fp16"}, []),
        ({"model": "g@int8"}, []),
        ({}, [("x-bitgear-precision", "int8"), *BOB]),
        ({}, BOB),
        ({}, [("authorization", "Bearer sk-eve")]),
        ({}, [("x-api-key", "sk-dan")]),
        ({"messages": [system, user]}, []),
        ({"messages": [other, user]}, []),
    ]
    for _ in range(2):
        for more, headers in different:
            await ask(gear, headers, **more)
    assert len(up.exchanges) == len(different)
    # One key is one tenant, however a client sends it; a pin by header is the same pin.
    assert told(await ask(gear, [("x-api-key", "sk-eve")])) == "hit"
    assert told(await ask(gear, [("x-bitgear-precision", "int8")])) == "hit"


async def test_case_6_every_parameter_counts_known_or_not(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    different: list[dict[str, Any]] = [
        {},
        {"max_tokens": 5},
        {"max_tokens": 6},
        {"max_completion_tokens": 5},
        {"logit_bias": {"1": 2}},
        {"logit_bias": {"1": 3}},
        {"seed": 1},
        {"seed": 2},
        {"stop": "a"},
        {"stop": ["a", "b"]},
        {"stop": ["b", "a"]},
        {"tools": [tool]},
        {"tools": [tool], "tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
        {"nobody_knows": {"deep": [1, {"x": None}]}},
        {"nobody_knows": {"deep": [1, {"x": 0}]}},
        {"nobody_knows": 2**70},
        {"nobody_knows": 2**70 + 1},
    ]
    for _ in range(2):
        for more in different:
            await ask(gear, **more)
    assert len(up.exchanges) == len(different)


async def test_case_7_order_of_keys_and_whitespace_do_not_count_order_of_lists_does(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    body = question(stop=["a", "b"], logit_bias={"1": 2, "3": 4}, user="u1", metadata={"a": "b"})
    turned = {k: body[k] for k in reversed(body)}
    turned["logit_bias"] = {"3": 4, "1": 2}
    same = [
        json.dumps(body).encode(),
        json.dumps(turned, indent=3).encode(),
        json.dumps({**body, "user": "u2", "metadata": None}).encode(),
        json.dumps(body).replace("2+2?", "\\u0032+2?").encode(),
        json.dumps({**body, "temperature": 0.0}).encode(),
    ]
    answers = []
    for raw in same:
        answers.append(await fetch(gear.url, CHAT_PATH, raw))
        await settled(gear)
    assert [told(a) for a in answers] == ["miss", "hit", "hit", "hit", "hit"]
    assert told(await ask(gear, **{**body, "stop": ["b", "a"]})) == "miss"
    assert len(up.exchanges) == 2


async def test_case_8_structured_answers_come_back_valid(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    text = '{"name": "你好 \\"q\\"", "n": [1, 2.50, null]}'
    up.always([Send(json_response(WIRE.answer(text)))])
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    first, second = [await ask(gear, response_format=schema) for _ in range(2)]
    streamed = await ask(gear, response_format=schema, stream=True)
    assert [told(a) for a in (first, second, streamed)] == ["miss", "hit", "hit"]
    assert second.json()["choices"][0]["message"]["content"] == text
    assert text_of(streamed) == text
    assert json.loads(text) == json.loads(text_of(streamed))


async def test_case_9_a_plain_answer_comes_back_as_a_stream(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    await ask(gear)
    stream = await ask(gear, stream=True)
    with_usage = await ask(gear, stream=True, stream_options={"include_usage": True})
    assert [told(stream), told(with_usage)] == ["hit", "hit"]
    assert (stream.head.get("content-type") or "").startswith("text/event-stream")
    assert stream.complete
    assert text_of(stream) == text_of(with_usage) == "four"
    assert stream.events()[-1] == with_usage.events()[-1] == b"[DONE]"
    assert b'"usage"' not in stream.body
    last = json.loads(with_usage.events()[-2])
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 5
    assert len(up.exchanges) == 1


async def test_case_9_a_stream_comes_back_plain(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(STREAM)
    assert told(await ask(gear, stream=True)) == "miss"
    plain = await ask(gear)
    assert told(plain) == "hit"
    answer = plain.json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "four"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 13, "total_tokens": 15, "completion_tokens": 2}
    assert text_of(await ask(gear, stream=True)) == "four"
    assert len(up.exchanges) == 1


async def test_case_9_tool_calls_and_logprobs_survive_in_openais_own_client(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    logprobs = '{"content":[{"token":"x","logprob":-0.25,"bytes":[120],"top_logprobs":[]}]}'
    head = f'{{"id":"{WIRE.id}","object":"chat.completion.chunk","created":1,"model":"g","choices":'
    says = event(head + f'[{{"index":0,"delta":{{"content":"x"}},"logprobs":{logprobs},"finish_reason":null}}]}}')
    up.always(
        script(
            response(
                [
                    event(head + '[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'),
                    says,
                    says,
                    event(
                        head + '[{"index":0,"delta":{"tool_calls":[{"id":"c0","type":"function","index":0,'
                        '"function":{"name":"add","arguments":""}}]},"finish_reason":null}]}'
                    ),
                    *(
                        event(
                            head + '[{"index":0,"delta":{"tool_calls":[{"index":0,"function":'
                            f'{{"arguments":{json.dumps(part)}}}}}]}},"finish_reason":null}}]}}'
                        )
                        for part in ('{"a', '": 1, "b"', ": 2.50}")
                    ),
                    event(head + '[{"index":0,"delta":{},"finish_reason":"tool_calls","stop_reason":null}]}'),
                    event(head + '[],"usage":{"prompt_tokens":3,"total_tokens":9,"completion_tokens":6}}'),
                    DONE,
                ]
            )
        )
    )
    client = AsyncOpenAI(base_url=gear.url + "/v1", api_key="k", max_retries=0)
    ask_for: dict[str, Any] = {
        "model": "g",
        "temperature": 0,
        "logprobs": True,
        "messages": [{"role": "user", "content": "add"}],
    }
    async with client:
        async for _ in await client.chat.completions.create(**ask_for, stream=True):
            pass
        await settled(gear)
        plain = await client.chat.completions.create(**ask_for)
        async with client.chat.completions.stream(
            model="g", temperature=0, logprobs=True, messages=[{"role": "user", "content": "add"}]
        ) as stream:
            streamed = await stream.get_final_completion()
    for answer in (plain, streamed):
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        calls = choice.message.tool_calls or []
        assert [(c.id, c.type, c.function.name, c.function.arguments) for c in calls] == [  # type: ignore[union-attr]
            ("c0", "function", "add", '{"a": 1, "b": 2.50}')
        ]
        assert choice.message.content == "xx"
        assert choice.logprobs is not None
        assert [t.logprob for t in choice.logprobs.content or []] == [-0.25, -0.25]
    assert len(up.exchanges) == 1


async def test_text_completions_and_embeddings_too(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    vectors = b'{"id":"e","object":"list","created":1,"model":"g","data":[{"index":0,"object":"embedding","embedding":[0.5,-0.1]}],"usage":{"prompt_tokens":4,"total_tokens":4,"completion_tokens":0}}'
    up.enqueue([Send(json_response(TEXT_WIRE.answer("attrs")))], [Send(json_response(vectors))])
    for path, body in (
        ("/v1/completions", {"model": "g", "prompt": "import", "temperature": 0}),
        ("/v1/embeddings", {"model": "g", "input": "hello"}),
    ):
        first = await fetch(gear.url, path, body)
        await settled(gear)
        second = await fetch(gear.url, path, body)
        assert [told(first), told(second)] == ["miss", "hit"]
        assert first.body == second.body
    stream = await fetch(
        gear.url, "/v1/completions", {"model": "g", "prompt": "import", "temperature": 0, "stream": True}
    )
    assert told(stream) == "hit"
    chunk, done = stream.events()
    assert json.loads(chunk)["choices"][0]["text"] == "attrs"
    assert done == b"[DONE]"
    assert len(up.exchanges) == 2


CUT = [WIRE.role(), WIRE.content("fo"), DONE]
NO_END = [WIRE.role(), WIRE.content("fo"), WIRE.content("ur", "stop"), USAGE]
REFUSED = WIRE.answer("x").replace(b'"refusal":null', b'"refusal":"I will not"')
NEVER: dict[str, tuple[bool, list[Step]]] = {
    "an error": (False, [Send(json_response(error_body("no"), 400))]),
    "an error inside a stream": (True, script(response([WIRE.role(), WIRE.content("a"), WIRE.error(), DONE]))),
    "a stream that ends early": (True, script(response(NO_END))),
    "a stream without its last chunk": (True, script(response(CUT))),
    "a filtered answer": (False, [Send(json_response(WIRE.answer("x").replace(b'"stop"', b'"content_filter"')))]),
    "a refused answer": (False, [Send(json_response(REFUSED))]),
    "an answer cut by the context's length": (
        False,
        [Send(json_response(WIRE.answer("x").replace(b'"stop"', b'"length"')))],
    ),
    "a refusal in a stream": (
        True,
        script(response([WIRE.role(), WIRE.delta('{"refusal":"no"}'), WIRE.content("", "stop"), USAGE, DONE])),
    ),
    "a filtered stream": (
        True,
        script(response([WIRE.role(), WIRE.content("a", "content_filter"), USAGE, DONE])),
    ),
    "no JSON": (False, [Send(json_response(b"four"))]),
}


@pytest.mark.parametrize("what", NEVER)
async def test_never_kept(bitgear: Start, redis_url: str, up: ScriptedUpstream, what: str) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url}, config={"breaker": {"failures": 99}})
    stream, steps = NEVER[what]
    up.always(steps)
    for _ in range(2):
        await ask(gear, stream=stream)
    assert len(up.exchanges) == 2
    assert await metric(gear, "bitgear_cache_bytes_total") == 0


async def test_an_answer_as_long_as_the_client_allowed_is_whole(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always([Send(json_response(WIRE.answer("x").replace(b'"stop"', b'"length"')))])
    assert [told(await ask(gear, max_tokens=5)) for _ in range(2)] == ["miss", "hit"]


async def test_only_repeatable_requests_by_themselves_others_by_header(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    accepts = [("cache-control", "max-age=60")]
    for more in ({"temperature": 0.7}, {"temperature": None}):
        assert [told(await ask(gear, **more)) for _ in range(2)] == ["bypass", "bypass"]
        assert [told(await ask(gear, accepts, **more)) for _ in range(2)] == ["miss", "hit"]
    assert [told(await ask(gear, temperature=1, seed=3)) for _ in range(2)] == ["miss", "hit"]


async def test_cache_control(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    assert told(await ask(gear, [("cache-control", "no-store")])) == "bypass"
    assert told(await ask(gear)) == "miss"
    up.always([Send(json_response(WIRE.answer("five")))])
    fresh = await ask(gear, [("cache-control", "no-cache")])
    assert told(fresh) == "miss"
    after = await ask(gear, [("Cache-Control", "max-age=60, weird, max-age=x")])
    assert told(after) == "hit"
    assert after.body == fresh.body
    assert told(await ask(gear, [("cache-control", "max-age=0")])) == "miss"


async def test_a_group_may_do_otherwise(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    backends = [{"precision": "fp16", "urls": [up.url]}]
    up.always(PLAIN)
    off = await bitgear(
        {"fp16": up.url},
        redis_url=redis_url,
        config={"cache": {"requests": "all"}, "groups": {"g": {"backends": backends, "cache": {"requests": "none"}}}},
    )
    assert [told(await ask(off)) for _ in range(2)] == ["bypass", "bypass"]
    everything = await started(
        bitgear,
        redis_url,
        {"fp16": up.url},
        config={"groups": {"g": {"backends": backends, "cache": {"requests": "all", "ttl_s": 5}}}},
    )
    assert [told(await ask(everything, temperature=1)) for _ in range(2)] == ["miss", "hit"]


async def test_the_weights_revision_counts(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    up.always(PLAIN)
    for revision, seen in (("a", "miss"), ("a", "hit"), ("b", "miss")):
        gear = await started(bitgear, redis_url, {"fp16": up.url}, variant={"revision": revision})
        assert told(await ask(gear)) == seen


async def test_a_lower_precision_serves_only_where_it_is_allowed(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    """The INT4 answer serves requests that allow INT4; who demands more gets, and leaves, a better one."""
    config = {
        "thresholds": {"int4": 1.0},
        "scenarios": {"realtime": {"prefer": "lowest_precision", "ttft_ms": None, "e2e_ms": None}},
    }
    gear = await started(bitgear, redis_url, {"fp16": up.url, "int4": other.url}, config=config)
    up.always([Send(json_response(WIRE.answer("fine")))])
    other.always([Send(json_response(WIRE.answer("coarse")))])
    demanding = [("x-bitgear-max-risk", "0")]

    def said(answer: Answer) -> tuple[str, str]:
        return told(answer), answer.json()["choices"][0]["message"]["content"]

    assert said(await ask(gear)) == ("miss", "coarse")
    assert said(await ask(gear)) == ("hit", "coarse")
    assert said(await ask(gear, demanding)) == ("miss", "fine")
    assert said(await ask(gear, demanding)) == ("hit", "fine")
    assert said(await ask(gear)) == ("hit", "fine")


async def test_the_answer_names_the_model_as_each_client_does(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    up.model = "served/name"
    gear = await started(bitgear, redis_url, {"fp16": up.url}, variant={"served_model": "served/name"})
    up.always([Send(json_response(WIRE.answer("x").replace(b'"model":"g"', b'"model":"served/name"')))])
    answers = [await ask(gear), await ask(gear), await ask(gear, [("x-bitgear-precision", "fp16")], model="g@fp16")]
    answers.append(await ask(gear, model="g@fp16"))
    assert [told(a) for a in answers] == ["miss", "hit", "miss", "hit"]
    assert [a.json()["model"] for a in answers] == ["g", "g", "g@fp16", "g@fp16"]


async def test_identical_requests_wait_for_one_call(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    go = asyncio.Event()
    up.always([Wait(go), *PLAIN])
    asks = [asyncio.create_task(fetch(gear.url, CHAT_PATH, question(stream=n % 2 == 1))) for n in range(10)]
    await until(lambda: gear.worker.app.inflight == 10)
    go.set()
    answers = await asyncio.gather(*asks)
    assert sorted(told(a) for a in answers) == ["hit"] * 9 + ["miss"]
    assert len(up.exchanges) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_takes_nobody_along(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, stream: bool
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    go = asyncio.Event()
    up.always([*STREAM[:2], Wait(go), *STREAM[2:]] if stream else [Wait(go), *PLAIN])
    async with RawClient(gear.url) as first, RawClient(gear.url) as waiting:
        await first.request("POST", CHAT_PATH, question(stream=stream))
        call = await up.exchange(0)
        stays = asyncio.create_task(fetch(gear.url, CHAT_PATH, question()))
        await waiting.request("POST", CHAT_PATH, question(stream=True))
        await until(lambda: gear.worker.app.inflight == 3)
        # One that only waits leaves: nothing happens to the others.
        waiting.close()
        await until(lambda: gear.worker.app.inflight == 2)
        # The one that asks leaves: its call goes on for the one that stays.
        first.close()
        await until(lambda: left(gear) == 1)
        assert not call.closed.is_set()
        go.set()
        answer = await stays
    assert answer.status == 200
    assert told(answer) == "hit"
    assert answer.json()["choices"][0]["message"]["content"] == "four"
    await until(lambda: gear.worker.app.inflight == 0)
    assert len(up.exchanges) == 1
    assert await metric(gear, "bitgear_requests_total") == 3


async def test_a_call_ends_at_once_when_nobody_waits_any_more(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always([Hang()])
    async with RawClient(gear.url) as first, RawClient(gear.url) as second:
        await first.request("POST", CHAT_PATH, question(stream=True))
        call = await up.exchange(0)
        await second.request("POST", CHAT_PATH, question())
        await until(lambda: gear.worker.app.inflight == 2)
        first.close()
        await until(lambda: left(gear) == 1)
        assert not call.closed.is_set()
        second.close()
        await asyncio.wait_for(call.closed.wait(), 60)
    await until(lambda: gear.worker.app.inflight == 0)
    assert len(up.exchanges) == 1


@pytest.mark.timing
async def test_who_leaves_takes_nobody_in_another_worker_along(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    one = await started(bitgear, redis_url, {"fp16": up.url})
    two = await started(bitgear, redis_url, {"fp16": up.url})
    go = asyncio.Event()
    up.enqueue([Wait(go), *PLAIN])
    up.always([Hang()])
    async with RawClient(one.url) as first, RawClient(two.url) as last:
        await first.request("POST", CHAT_PATH, question())
        call = await up.exchange(0)
        stays = asyncio.create_task(fetch(two.url, CHAT_PATH, question()))
        with Redis.from_url(redis_url) as client:
            await until(lambda: client.keys("bitgear:w1:*") != [])
        first.close()
        await until(lambda: left(one) == 1)
        # Longer than the holder's pause between two looks at who waits.
        await asyncio.sleep(0.6)
        assert not call.closed.is_set()
        go.set()
        assert told(await stays) == "hit"
        assert len(up.exchanges) == 1
        # Nobody waits there: at once.
        await first.connect()
        await first.request("POST", CHAT_PATH, question("alone"))
        call = await up.exchange(1)
        first.close()
        await asyncio.wait_for(call.closed.wait(), 60)
        # The last one there goes: soon after.
        await first.connect()
        await first.request("POST", CHAT_PATH, question("both"))
        call = await up.exchange(2)
        await last.request("POST", CHAT_PATH, question("both"))
        with Redis.from_url(redis_url) as client:
            await until(lambda: client.keys("bitgear:w1:*") != [])
        first.close()
        await until(lambda: left(one) == 1)
        assert not call.closed.is_set()
        last.close()
        await asyncio.wait_for(call.closed.wait(), 60)


async def test_after_an_answer_that_cannot_be_shared_all_ask_at_once(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    go, rest = asyncio.Event(), asyncio.Event()
    refused: list[Step] = [Send(json_response(REFUSED))]
    up.enqueue([Wait(go), *refused])
    up.always([Wait(rest), *refused])
    asks = [asyncio.create_task(fetch(gear.url, CHAT_PATH, question())) for _ in range(5)]
    await until(lambda: gear.worker.app.inflight == 5)
    go.set()
    # All four at once, not one after the other.
    await up.until(lambda: up.running == 4)
    rest.set()
    assert [told(a) for a in await asyncio.gather(*asks)] == ["miss"] * 5


@pytest.mark.timing
async def test_across_workers_one_call_and_a_crash_holds_nobody_up(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    config = {"cache": {"lease_s": 0.5}}
    one = await started(bitgear, redis_url, {"fp16": up.url}, config=config)
    two = await started(bitgear, redis_url, {"fp16": up.url}, config=config)
    go = asyncio.Event()
    up.always([Wait(go), *PLAIN])
    first = asyncio.create_task(fetch(one.url, CHAT_PATH, question()))
    await up.exchange(0)
    second = asyncio.create_task(fetch(two.url, CHAT_PATH, question()))
    # Longer than the lease: it is renewed.
    await asyncio.sleep(1.0)
    assert len(up.exchanges) == 1
    go.set()
    assert [told(await first), told(await second)] == ["miss", "hit"]
    # A worker that stops renewing, as one that died does: the lease ends, the other one asks.
    go.clear()
    first = asyncio.create_task(fetch(one.url, CHAT_PATH, question("again")))
    await up.exchange(1)
    one.worker.caching.store.lease = lambda *_a, **_k: None  # type: ignore[method-assign]
    second = asyncio.create_task(fetch(two.url, CHAT_PATH, question("again")))
    await up.exchange(2)
    go.set()
    assert told(await second) == "miss"
    await first


async def test_purge_by_tenant_group_key_and_age(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)

    async def purged(**order: Any) -> Any:
        return (await fetch(gear.admin_url, "/admin/cache/purge", order)).json()

    async def filled() -> None:
        await ask(gear)
        await ask(gear, BOB)
        await ask(gear, text="other")

    await filled()
    assert "error" in await purged()
    assert (await fetch(gear.admin_url, "/admin/cache/purge", {"tenant": "a*"})).status == 400
    assert await purged(group="nobody") == {"purged": 0}
    assert await purged(older_than_s=60) == {"purged": 0}
    assert await purged(credential="Bearer sk-bob") == {"purged": 1}
    assert [told(await ask(gear)), told(await ask(gear, BOB))] == ["hit", "miss"]
    assert await purged(tenant="anonymous") == {"purged": 2}
    await filled()
    assert await purged(group="g") == {"purged": 3}
    await filled()
    assert await purged(older_than_s=0) == {"purged": 3}
    await filled()
    assert await purged(everything=True) == {"purged": 3}
    state = (await fetch(gear.admin_url, "/admin/cache")).json()
    assert state["state"] == "up"
    assert state["bytes_written"] > 0


async def test_a_hit_is_one_event_that_names_key_and_tenant_but_no_credential(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    for _ in range(2):
        await ask(gear, BOB)
    with Redis.from_url(redis_url) as client:
        await until(lambda: client.xlen("bitgear:events") == 2)
        events = [json.loads(fields[b"event"]) for _, fields in client.xrange("bitgear:events")]
        names = [name.decode() for name in client.keys("bitgear:c1:*")]
    assert [e["cache"] for e in events] == ["miss", "hit"]
    assert events[0]["cache_key"] == events[1]["cache_key"]
    assert events[1]["reason"] == "cached"
    assert events[1]["cache_age_s"] == 0
    assert names == [f"bitgear:c1:g:{events[0]['tenant']}:{{{events[0]['cache_key']}}}"]
    assert "sk-bob" not in json.dumps(events) + names[0]
    found = await fetch(gear.admin_url, "/admin/cache/purge", {"key": events[0]["cache_key"]})
    assert found.json() == {"purged": 1}


async def test_encrypted_at_rest(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="the extra `encryption`")
    monkeypatch.setenv("CACHE_KEY", "ab" * 32)
    config = {"cache": {"encryption_key_env": "CACHE_KEY", "compress_above_bytes": 100_000}}
    gear = await started(bitgear, redis_url, {"fp16": up.url}, config=config)
    up.always([Send(json_response(WIRE.answer("a secret word")))])
    assert [told(await ask(gear)) for _ in range(2)] == ["miss", "hit"]
    with Redis.from_url(redis_url) as client:
        (name,) = client.keys("bitgear:c1:*")
        assert b"secret" not in client.get(name)  # type: ignore[operator]
    # Another key reads nothing, and nothing breaks.
    monkeypatch.setenv("CACHE_KEY", "cd" * 32)
    other = await started(bitgear, redis_url, {"fp16": up.url}, config=config)
    assert told(await ask(other)) == "miss"
    assert await metric(other, "bitgear_cache_errors_total") == 1


async def test_vectors_are_only_taken_at_the_highest_precision(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    """Vectors of two precisions must not meet in one index; and an error before is no reason to miss later."""
    gear = await started(
        bitgear, redis_url, {"fp16": up.url, "int8": other.url}, config={"thresholds": {"int8": 1.0}}, wait=False
    )
    await until(lambda: all(r.ready for v in gear.worker.fleet.variants() for r in v.replicas))
    vectors = b'{"object":"list","model":"g","data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":4,"total_tokens":4}}'
    up.always([Send(json_response(vectors))])
    other.always([Send(json_response(vectors))])
    (fp16, _) = [r for v in gear.worker.fleet.variants() for r in v.replicas]
    fp16.draining = True

    async def embed() -> str:
        answer = await fetch(gear.url, "/v1/embeddings", {"model": "g", "input": "hello"})
        await settled(gear)
        return told(answer) + f" {answer.status}"

    away = [await embed(), await embed()]
    fp16.draining = False
    back = [await embed(), await embed()]
    assert away == ["none 503", "none 503"]
    assert back == ["miss 200", "hit 200"]


async def test_a_hit_needs_no_variant(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, {"fp16": up.url})
    up.always(PLAIN)
    await ask(gear)
    for variant in gear.worker.fleet.variants():
        variant.replicas[0].draining = True
    assert told(await ask(gear)) == "hit"
    assert (await ask(gear, text="new")).status == 503
