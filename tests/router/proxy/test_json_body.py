"""Bodies are read strictly, never refused for what a string holds, and changed nowhere but where they must be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy.errors import ApiError
from router.proxy.json_body import parse_body, with_model, with_usage

ANY = settings(max_examples=150, deadline=None)
NASTY = st.sampled_from(
    ['"', '":', '\\":', '" :', "\\", "\\\\", 'x":', "{", "}", "[", "]", ",", ":", '"model"', "model", "é", "你好", "\n"]
)
texts = st.lists(NASTY, max_size=5).map("".join)
numbers = st.sampled_from([0, -1, 1.5, 1e300, 2**63, True, None])
values = st.recursive(
    texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(texts, values, max_size=4)


def written(value: Any, spaces: str, ascii_only: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(f"{spaces},{spaces}", f"{spaces}:{spaces}")).encode()


def refusal(raw: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_body(raw)
    assert caught.value.status == 400
    return caught.value


@ANY
@given(bodies, st.sampled_from(["", " ", "\n\t "]), st.booleans())
def test_no_valid_object_is_refused(body: dict[str, Any], spaces: str, ascii_only: bool) -> None:
    raw = written(body, spaces, ascii_only)
    assert parse_body(raw) == json.loads(raw)


@ANY
@given(bodies, texts, values, st.sampled_from(["", " ", "\n"]), st.integers(0, 4), st.booleans())
def test_a_key_that_stands_twice_is_refused_by_name_wherever_it_is(
    beside: dict[str, Any], key: str, value: Any, spaces: str, depth: int, ascii_only: bool
) -> None:
    twice = b"{%b%b:%b,%b%b:%b}" % (
        *(json.dumps(key).encode(), spaces.encode(), written(value, spaces, ascii_only)),
        *(json.dumps(key).encode(), b"", written(value, "", ascii_only)),
    )
    inner = twice
    for level in range(depth):
        inner = b"[1,%b]" % inner if level % 2 else b'{"a":%b}' % inner
    rest = written({f"{k}~": v for k, v in beside.items()}, "", ascii_only)[1:-1]
    raw = b'{"deep":%b%b}' % (inner, b"," + rest if rest else b"")
    error = refusal(raw)
    assert error.code == "duplicate_key"
    assert error.param == key[:100]


def test_a_key_that_ends_in_a_backslash_does_not_hide_a_duplicate() -> None:
    assert refusal(b'{"a\\\\":1,"model":"x","model":"y"}').param == "model"


def test_keys_that_differ_only_in_their_spelling_are_the_same() -> None:
    assert refusal(b'{"model":"x","mod\\u0065l":"y"}').param == "model"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "line 1 column"),
        (b'{"a":1,}', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":Infinity}', "not valid JSON"),
        (b'{"a":-Infinity}', "not valid JSON"),
        (b'{"a":"\xff"}', "not valid JSON"),
        (b'{"a":"\\ud800"}', "not valid JSON"),
        (b'\xef\xbb\xbf{"a":1}', "not valid JSON"),
        ('{"a":1}'.encode("utf-16"), "not valid JSON"),
        (b'{"a":1}{"b":2}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "not valid JSON"),
        (b"[]", "expected an object, found an array"),
        (b"null", "found null"),
        (b"true", "found a boolean"),
        (b"1.5", "found a number"),
        (b'"x"', "found a string"),
        (b'{"a" :' * 1000 + b"1" + b"}" * 1000, "nested too deeply"),
        (b'{"a" :' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_what_is_no_object_is_refused_with_a_reason(raw: bytes, words: str) -> None:
    error = refusal(raw)
    assert words in error.message
    assert error.param == "body"
    assert len(error.message) < 300


chats = st.fixed_dictionaries(
    {"model": st.sampled_from(["g@int8", "größe", 'm"x', "模型", "a\\b"])},
    optional={
        "messages": values,
        "metadata": st.just({"model": "g@int8"}),
        "x": values,
        "stream_options": st.sampled_from([{}, {"include_usage": False}, {"x": {"y": [1]}}, None]),
    },
)


def shuffled(body: dict[str, Any], order: Any) -> dict[str, Any]:
    keys = list(body)
    order.shuffle(keys)
    return {k: body[k] for k in keys}


def changed_only(before: bytes, after: bytes, old: bytes, new: bytes) -> bool:
    """Whether one place of `before` was exchanged to give `after`."""
    return any(
        before[:i] + new + before[i + len(old) :] == after for i in range(len(before)) if before.startswith(old, i)
    )


@ANY
@given(chats, st.randoms(use_true_random=False), st.sampled_from(["", " ", "\n"]), st.booleans())
def test_only_the_models_name_is_exchanged(body: dict[str, Any], order: Any, spaces: str, ascii_only: bool) -> None:
    body = shuffled(body, order)
    raw = written(body, spaces, ascii_only)
    out = with_model(raw, parse_body(raw), "served")
    assert json.loads(out) == {**json.loads(raw), "model": "served"}
    assert changed_only(raw, out, json.dumps(body["model"], ensure_ascii=ascii_only).encode(), b'"served"')


@ANY
@given(chats, st.randoms(use_true_random=False), st.sampled_from(["", " ", "\n"]), st.booleans())
def test_only_the_usage_is_asked_for(body: dict[str, Any], order: Any, spaces: str, ascii_only: bool) -> None:
    body = shuffled(body, order)
    raw = written(body, spaces, ascii_only)
    out = with_usage(raw, parse_body(raw))
    told = json.loads(raw)
    asked = {**(told.get("stream_options") or {}), "include_usage": True}
    assert json.loads(out) == {**told, "stream_options": asked}
    if "stream_options" in body:
        old = written(body["stream_options"], spaces, ascii_only)
        assert changed_only(raw, out, old, json.dumps(asked, separators=(",", ":")).encode())
    else:
        assert out.endswith(raw[1:])


ODD = b'{ "seed":12345678901234567890123, "x":1.50,"e":1E+2 , "s":"\\u4F60\\/","model" : "a", "n":-0.0 }'


def test_numbers_and_escapes_keep_their_spelling() -> None:
    assert with_model(ODD, parse_body(ODD), "b") == ODD.replace(b'"model" : "a"', b'"model" : "b"')
    assert with_usage(ODD, parse_body(ODD)) == ODD.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    told = ODD.replace(b'"n"', b'"stream_options" : { "include_usage" : false } , "n"')
    assert with_usage(told, parse_body(told)) == told.replace(b'{ "include_usage" : false }', b'{"include_usage":true}')


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"metadata":{"model":"a"},"model":"a"}', b'{"metadata":{"model":"a"},"model":"b"}'),
        (b'{"metadata":{"model":"a"},"mod\\u0065l":"a"}', b'{"metadata":{"model":"a"},"mod\\u0065l":"b"}'),
        (b'{"metadata":{"model":"a"},"model":"\\u0061"}', b'{"metadata":{"model":"a"},"model":"b"}'),
        (
            b'{"x":["model",{"model":"a"}],"model":"a","y":"model"}',
            b'{"x":["model",{"model":"a"}],"model":"b","y":"model"}',
        ),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a"}', b'{"x":"\\"model\\":\\"a\\"","model":"b"}'),
    ],
)
def test_a_model_named_elsewhere_stays(raw: bytes, expected: bytes) -> None:
    assert with_model(raw, parse_body(raw), "b") == expected


def test_megabytes_of_a_picture_cost_milliseconds() -> None:
    picture = "data:image/png;base64," + "A" * 8_000_000
    body = {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}],
        "model": "a",
    }
    for extra in ({}, {"metadata": {"model": "a"}}):
        raw = json.dumps({**extra, **body}).encode()
        parsed = parse_body(raw)
        assert json.loads(with_model(raw, parsed, "b"))["model"] == "b"


def test_a_string_of_nothing_but_escapes_does_no_harm() -> None:
    raw = json.dumps({"x": '"' * 500_000, "m": {"model": "a"}, "model": "a"}).encode()
    assert json.loads(with_model(raw, parse_body(raw), "b"))["model"] == "b"
