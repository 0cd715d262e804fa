"""Case 29: bad requests get a 4xx in OpenAI's shape that names the field, never a 500, and cost no replica's time."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases.helpers import CHAT_PATH, Start, settled
from tests.support.client import Answer, RawClient, chat, encode_request, fetch
from tests.support.upstream import ScriptedUpstream

GOOD = '{"model":"g","messages":[{"role":"user","content":"a"}]}'
MESSAGES = [{"role": "user", "content": "a"}]


def with_field(text: str) -> bytes:
    """A good request with one more field, as JSON text."""
    return (GOOD[:-1] + "," + text + "}").encode()


def check_error(answer: Answer, status: int, param: str | None, note: object = None) -> None:
    assert answer.status == status, (note, answer.body)
    assert answer.complete
    assert answer.head.get("content-type") == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["type"] in ("invalid_request_error", "not_found_error")
    assert error["param"] == param, (note, error)


BAD_JSON: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  \n",
    "cut": GOOD[:-5].encode(),
    "trailing": GOOD.encode() + b"x",
    "two": GOOD.encode() * 2,
    "single quotes": GOOD.replace('"', "'").encode(),
    "trailing comma": (GOOD[:-1] + ",}").encode(),
    "comment": b"// a\n" + GOOD.encode(),
    "form": b"model=g&messages=a",
    "binary": bytes(range(256)),
    "array": b"[]",
    "string": b'"a"',
    "number": b"1",
    "null": b"null",
    "true": b"true",
    "NaN": with_field('"temperature":NaN'),
    "Infinity": with_field('"temperature":Infinity'),
    "-Infinity": with_field('"logit_bias":{"1":-Infinity}'),
    "leading zero": with_field('"seed":01'),
    "bare dot": with_field('"top_p":.5'),
    "hex": with_field('"seed":0x1F'),
    "raw newline in a string": with_field('"user":"a\nb"'),
    "raw NUL in a string": with_field('"user":"a\0b"'),
    "bad escape": with_field('"user":"\\x41"'),
    "lone surrogate escape": with_field('"user":"\\ud800"'),
    "invalid UTF-8": GOOD.encode().replace(b'"a"', b'"\xff\xfe"'),
    "cut UTF-8": GOOD.encode().replace(b'"a"', b'"\xe4\xbd"'),
    "overlong UTF-8": GOOD.encode().replace(b'"a"', b'"\xc0\xaf"'),
    "UTF-8 surrogate": GOOD.encode().replace(b'"a"', b'"\xed\xa0\x80"'),
    "UTF-16": GOOD.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "deep arrays": with_field('"x":' + "[" * 5000 + "]" * 5000),
    "very deep objects": with_field('"x":' + '{"a":' * 100_000 + "1" + "}" * 100_000),
    "unclosed deep arrays": b"[" * 1_000_000,
}


async def test_case_29_bad_json(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for name, raw in BAD_JSON.items():
        check_error(await fetch(gear.url, CHAT_PATH, raw), 400, "body", name)
    assert up.exchanges == []


WRONG_FIELDS: list[tuple[str, bytes]] = [
    ("temperature", with_field('"temperature":"hot"')),
    ("temperature", with_field('"temperature":true')),
    ("temperature", with_field('"temperature":[1]')),
    ("top_p", with_field('"top_p":{}')),
    ("max_tokens", with_field('"max_tokens":"10"')),
    ("max_tokens", with_field('"max_tokens":1.5')),
    ("max_tokens", with_field('"max_tokens":true')),
    ("max_completion_tokens", with_field('"max_completion_tokens":[]')),
    ("n", with_field('"n":"2"')),
    ("seed", with_field('"seed":"x"')),
    ("stream", with_field('"stream":"yes"')),
    ("stream", with_field('"stream":1')),
    ("stream_options", with_field('"stream":true,"stream_options":[]')),
    ("stream_options", with_field('"stream_options":{"include_usage":true}')),
    ("stop", with_field('"stop":5')),
    ("stop", with_field('"stop":{"a":1}')),
    ("tools", with_field('"tools":"hammer"')),
    ("response_format", with_field('"response_format":"json"')),
    ("logit_bias", with_field('"logit_bias":[1]')),
    ("user", with_field('"user":{"id":1}')),
    ("temperature", with_field('"temperature":1,"temperature":2')),
    ("model", with_field('"model":"other"')),
    ("messages", with_field('"messages":[]')),
    ("messages", b'{"model":"g"}'),
    ("messages", b'{"model":"g","messages":null}'),
    ("messages", b'{"model":"g","messages":[]}'),
    ("messages", b'{"model":"g","messages":"hi"}'),
    ("messages", b'{"model":"g","messages":{}}'),
    ("messages", b'{"model":"g","messages":7}'),
    ("messages[0]", b'{"model":"g","messages":["hi"]}'),
    ("messages[0]", b'{"model":"g","messages":[null]}'),
    ("messages[1]", b'{"model":"g","messages":[{"role":"user","content":"a"},[]]}'),
    ("messages[0].role", b'{"model":"g","messages":[{}]}'),
    ("messages[0].role", b'{"model":"g","messages":[{"content":"a"}]}'),
    ("messages[0].role", b'{"model":"g","messages":[{"role":5,"content":"a"}]}'),
    ("messages[0].content", b'{"model":"g","messages":[{"role":"user","content":5}]}'),
    ("messages[0].content", b'{"model":"g","messages":[{"role":"user","content":{"a":1}}]}'),
    ("role", b'{"model":"g","messages":[{"role":"user","role":"system","content":"a"}]}'),
    ("model", b'{"messages":[{"role":"user","content":"a"}]}'),
    ("model", b'{"model":null,"messages":[{"role":"user","content":"a"}]}'),
    ("model", b'{"model":5,"messages":[{"role":"user","content":"a"}]}'),
    ("model", b'{"model":["g"],"messages":[{"role":"user","content":"a"}]}'),
    ("model", b'{"model":{"g":1},"messages":[{"role":"user","content":"a"}]}'),
]


async def test_case_29_wrong_field_is_named(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for param, raw in WRONG_FIELDS:
        answer = await fetch(gear.url, CHAT_PATH, raw)
        check_error(answer, 400, param, raw)
        assert param in answer.json()["error"]["message"]
    assert up.exchanges == []


UNKNOWN = [
    "nope",
    "",
    "g@",
    "g@nope",
    "@fp16",
    "g@fp16@fp16",
    "G",
    "g ",
    "g\u0000",
    "模型",
    "x" * 10_000,
    "😀",
    "../g",
    "g@none",
]


async def test_case_29_unknown_model(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for model in UNKNOWN:
        answer = await fetch(gear.url, CHAT_PATH, {"model": model, "messages": MESSAGES})
        check_error(answer, 404, "model", model)
        assert len(answer.body) < 1000
    assert up.exchanges == []


OTHER_ENDPOINTS: list[tuple[str, dict[str, Any], int, str | None]] = [
    ("/v1/completions", {"model": "g"}, 400, "prompt"),
    ("/v1/completions", {"model": "g", "prompt": 5}, 400, "prompt"),
    ("/v1/completions", {"model": "g", "prompt": []}, 400, "prompt"),
    ("/v1/embeddings", {"model": "g"}, 400, "input"),
    ("/v1/embeddings", {"model": "g", "input": {}}, 400, "input"),
    ("/v1/responses", {"model": "g"}, 400, "input"),
    ("/v1/route", {"model": "g"}, 400, "messages"),
    ("/v1/unheard-of", {"model": "g"}, 404, "model"),
    ("/v2/chat/completions", {"model": "g"}, 404, None),
]


async def test_case_29_other_endpoints(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for path, body, status, param in OTHER_ENDPOINTS:
        check_error(await fetch(gear.url, path, body), status, param, (path, body))
    assert up.exchanges == []


HEADERS: list[tuple[str, str]] = [
    ("x-bitgear-scenario", "warp"),
    ("x-bitgear-scenario", ""),
    ("x-bitgear-precision", "int3"),
    ("x-bitgear-max-risk", "high"),
    ("x-bitgear-max-risk", "nan"),
    ("x-bitgear-max-risk", "2"),
    ("x-bitgear-max-risk", "-0.1"),
    ("x-bitgear-max-risk", "inf"),
]


async def test_case_29_bad_header_is_named(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for name, value in HEADERS:
        check_error(await fetch(gear.url, CHAT_PATH, GOOD.encode(), [(name, value)]), 400, name, value)
    assert up.exchanges == []


async def test_case_29_pins_that_contradict_each_other(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url, "int8": other.url})
    answer = await fetch(gear.url, CHAT_PATH, chat(model="g@fp16"), [("x-bitgear-precision", "int8")])
    check_error(answer, 400, "x-bitgear-precision")


async def test_case_29_strange_but_valid_requests_pass_untouched(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    fine = [
        with_field('"x":12345678901234567890123'),
        with_field('"temperature":1e-400,"x":1E5,"y":-0'),
        with_field('"user":"\\u4f60\\ud83d\\ude00\\/"'),
        with_field('"x":' + "[" * 500 + "]" * 500),
        with_field('"stop":null,"tools":null,"n":null,"stream":null,"max_tokens":null'),
        b" \r\n\t" + GOOD.encode() + b"\n\n",
        GOOD.replace(":", " :\n").encode(),
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"model":"g"}',
        b'{"model":"g","messages":[{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"a"}]}',
        b'{"model":"g","messages":[{"role":"user","content":""}]}',
        with_field('"a\\\\":1,"b\\"":2,"":3'),
    ]
    for number, raw in enumerate(fine):
        answer = await fetch(gear.url, CHAT_PATH, raw)
        assert answer.status == 200, (raw[:200], answer.body)
        assert up.exchanges[number].body == raw


async def test_case_29_a_duplicate_key_is_refused_whatever_stands_beside_it(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    for raw in (
        with_field('"n":1,"n":2,"x\\\\":1'),
        with_field('"n":1,"\\u006e":2'),
        with_field('"x":[{"n":1},{"n":1,"n":2}]'),
        with_field('"n" :1,"n"\n:2'),
    ):
        check_error(await fetch(gear.url, CHAT_PATH, raw), 400, "n")
    assert up.exchanges == []


async def test_case_29_connection_serves_on_after_each_refusal(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    async with RawClient(gear.url) as client:
        for raw in (b"{", b"[]", GOOD.encode(), b'{"model":"nope"}', GOOD.encode()):
            await client.request("POST", CHAT_PATH, raw)
            answer = await client.answer()
            assert answer.status in (200, 400, 404)
    assert len(up.exchanges) == 2


async def test_case_29_wrong_method(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        check_error(await fetch(gear.url, CHAT_PATH, method=method), 405, None, method)


async def test_case_29_too_large_a_body_is_413_told_or_not(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"max_body_mib": 0.01}})
    big = with_field('"x":"' + "y" * 20_000 + '"')
    check_error(await fetch(gear.url, CHAT_PATH, big), 413, "body")
    async with RawClient(gear.url) as client:
        head = encode_request("POST", CHAT_PATH, b"", [("transfer-encoding", "chunked")])
        await client.send(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(big), big))
        check_error(await client.answer(), 413, "body")
    assert up.exchanges == []
    assert (await fetch(gear.url, CHAT_PATH, GOOD.encode())).status == 200


async def test_case_29_bodies_in_chunks_and_with_expect_are_read(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    raw = GOOD.encode()
    async with RawClient(gear.url) as client:
        head = encode_request("POST", CHAT_PATH, b"", [("transfer-encoding", "chunked")])
        await client.send(head + b"".join(b"1\r\n%c\r\n" % b for b in raw) + b"0\r\n\r\n")
        assert (await client.answer()).status == 200
        await client.send(
            encode_request("POST", CHAT_PATH, b"", [("content-length", str(len(raw))), ("expect", "100-continue")])
        )
        assert (await client.head()).status == 100
        await client.send(raw)
        assert (await client.answer()).status == 200
    assert [e.body for e in up.exchanges] == [raw, raw]


async def test_case_29_unknown_encoding_is_415(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    check_error(
        await fetch(gear.url, CHAT_PATH, GOOD.encode(), [("content-encoding", "gzip")]), 415, "content-encoding"
    )


KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "stream",
        "max_tokens",
        "tools",
        "stop",
        "stream_options",
        "n",
        "seed",
        "x",
        "role",
        "content",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("user") | JSON}, optional={"content": JSON, "tool_calls": JSON, "name": JSON}
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(more=st.dictionaries(KEYS, JSON, max_size=4), messages=st.lists(MESSAGE, max_size=3) | JSON)
def test_case_29_no_valid_json_makes_a_500(more: dict[str, Any], messages: Any) -> None:
    from router.proxy.errors import ApiError
    from router.proxy.json_body import parse_body
    from router.proxy.surface import CHAT
    from router.proxy.validation import text_units, validate

    raw = json.dumps({"model": "g", "messages": messages, **more}).encode()
    refused: ApiError | None = None
    try:
        body = parse_body(raw)
        validate(body, CHAT)
        units, least = text_units(body)
    except ApiError as error:
        refused = error
    if refused is None:
        assert units >= 0
        assert least >= 0
    else:
        assert 400 <= refused.status < 500
        assert refused.param


async def test_case_29_odd_requests_that_pass_validation_do_not_break_the_decision(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    odd: list[Any] = [
        [{"role": "", "content": ""}],
        [{"role": "user", "content": []}],
        [
            {
                "role": "user",
                "content": [None, 5, "a", [], {}, {"type": 5}, {"type": "text"}, {"type": "text", "text": 5}],
            }
        ],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}],
        [{"role": "tool", "content": "x", "tool_call_id": 5, "tool_calls": "no"}],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [None, 5, {"function": "x"}, {"function": {"arguments": 5}}],
            }
        ],
        [{"role": "user", "content": "\u0000\u2028\ufeff\u200b😀" * 50}],
        [{"role": "user", "content": "a" * 300_000}],
        [{"role": "user", "content": "a", "extra": {"deep": [[[[]]]]}}] * 200,
    ]
    more: list[dict[str, Any]] = [
        {},
        {"tools": [None, 5, {"function": None}], "stop": [None, 5], "max_tokens": 0},
        {"max_tokens": -5, "n": -1, "temperature": 1e308, "response_format": {"type": 5}},
        {"max_tokens": 10**30, "metadata": {"messages": "x"}, "tool_choice": 5},
    ]
    for messages in odd:
        for fields in more:
            answer = await fetch(gear.url, CHAT_PATH, {"model": "g", "messages": messages, **fields})
            assert answer.status < 500, (messages, fields, answer.body)
    await settled(gear, up)
