"""Two requests share a key exactly when nothing that can change the answer differs."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from router.cache.key import (
    ANONYMOUS,
    IGNORED,
    Key,
    Place,
    prefix_of,
    request_key,
    tenant_of,
    tenant_of_credential,
)

PLACE = Place("g", None, ANONYMOUS, "r")
PATH = b"/v1/chat/completions"
# What Redis, JSON and Python treat in their own ways is in: empty, long, astral, escapes, big integers, tiny floats.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab\u4f60 \\"', max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "messages",
        "prompt",
        "max_tokens",
        "temperature",
        "seed",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "logit_bias",
        "chat_template_kwargs",
        "guided_json",
        "unknown",
        "n",
        "lora",
        "",
    ]
)
BODIES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=6)


def key_of(body: dict[str, Any], place: Place = PLACE, path: bytes = PATH, raw: bytes | None = None) -> Key:
    key = request_key(path, raw if raw is not None else json.dumps(body).encode(), body, place)
    assert key is not None
    return key


def turned(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of every object in another order."""
    if isinstance(value, dict):
        items = [(k, turned(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [turned(v, rng) for v in value] if isinstance(value, list) else value


@given(BODIES, st.randoms(use_true_random=False), st.sampled_from([None, 1, 4]), st.booleans())
def test_same_request_same_key(body: dict[str, Any], rng: random.Random, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(turned(body, rng), indent=indent, ensure_ascii=ascii_only).encode()
    other = {**orjson.loads(raw), "stream": True, "user": "u", "metadata": {"a": 1}, "stream_options": None}
    assert key_of(orjson.loads(json.dumps(body))) == key_of(other, raw=raw)


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: of the same type all the way down."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(BODIES, NAMES, VALUES)
def test_any_changed_parameter_changes_the_key(body: dict[str, Any], name: str, value: Any) -> None:
    before = body.get(name, ...)
    changed = {**body, name: value}
    if before is not ... and (same(before, value) or (name == "temperature" and before == value)):
        return
    assert key_of(body) != key_of(changed)


@given(BODIES, NAMES, st.data())
def test_any_change_deep_inside_changes_the_key(body: dict[str, Any], name: str, data: st.DataObject) -> None:
    deep = {**body, name: {"a": [1, {"b": data.draw(VALUES)}]}}
    other = {**body, name: {"a": [1, {"b": data.draw(VALUES)}]}}
    assert (key_of(deep) == key_of(other)) == same(deep, other)


@given(BODIES, st.lists(SCALARS, min_size=2, max_size=4))
def test_order_of_a_list_counts(body: dict[str, Any], items: list[Any]) -> None:
    back = items[::-1]
    assert (key_of({**body, "stop": items}) == key_of({**body, "stop": back})) == same(items, back)


@given(st.integers(2**63, 2**80), st.integers(2**63, 2**80), st.booleans())
def test_integers_beyond_64_bits_are_told_apart(a: int, b: int, nested: bool) -> None:
    def key(n: int) -> Key:
        raw = json.dumps({"x": {"y": n} if nested else n, "z": 10**25}).encode()
        return key_of(orjson.loads(raw), raw=raw)

    assert (key(a) == key(b)) == (a == b)


def test_an_integer_of_thousands_of_digits_has_no_key() -> None:
    raw = b'{"x":' + b"9" * 5000 + b"}"
    assert request_key(PATH, raw, {"x": 1.0}, PLACE) is None


TEXTS = st.text(max_size=5)
PLACES = st.builds(Place, TEXTS, st.none() | TEXTS, TEXTS, TEXTS)


@given(PLACES, PLACES, st.binary(max_size=4), st.binary(max_size=4))
def test_place_and_path_count(a: Place, b: Place, path_a: bytes, path_b: bytes) -> None:
    body = {"prompt": "x"}
    assert (key_of(body, a, path_a).digest == key_of(body, b, path_b).digest) == (a == b and path_a == path_b)


def test_what_does_not_count() -> None:
    assert {"stream", "stream_options", "user", "metadata", "model"} == IGNORED


def test_names_hold_group_and_tenant_for_purging() -> None:
    key = key_of({"a": 1}, Place("my group/*", None, "t", ""))
    assert key.entry.startswith(prefix_of("my group/*", "t"))
    assert prefix_of("my group/*", "t") == "bitgear:c1:my%20group%2F%2A:t:"
    assert "{" + key.digest + "}" in key.entry
    assert "{" + key.digest + "}" in key.lease


def test_tenants() -> None:
    bob = tenant_of_credential(b"Bearer sk-bob")
    assert tenant_of([(b"authorization", b"Bearer sk-bob")], b"authorization") == bob
    # One key is one tenant, whichever way a client sends it.
    assert tenant_of([(b"authorization", b"bearer   sk-bob ")], b"authorization") == bob
    assert tenant_of([(b"x-api-key", b"sk-bob")], b"authorization") == bob
    assert tenant_of([(b"x-team", b"a"), (b"authorization", b"b")], b"x-team") == tenant_of_credential(b"a")
    assert tenant_of([], b"authorization") == ANONYMOUS
    assert tenant_of([(b"authorization", b"")], b"authorization") == ANONYMOUS
    assert tenant_of_credential(b"Bearer sk-bob", b"secret") != bob
    assert "bob" not in bob
