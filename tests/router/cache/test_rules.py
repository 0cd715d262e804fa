"""Which requests use the cache."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cache.rules import NOTHING_SAID, Control, Requests, cacheable, read_control
from router.proxy.surface import CHAT, ENDPOINTS, OTHER, Endpoint

EMBEDDINGS = ENDPOINTS[b"/v1/embeddings"]


@pytest.mark.parametrize(
    ("value", "control"),
    [
        (b"no-store", Control(no_store=True)),
        (b"No-Cache, max-age=5", Control(no_cache=True, max_age_s=5)),
        (b'max-age="7"', Control(max_age_s=7)),
        (b"max-age=-1, max-age=x, max-age, public,,=", NOTHING_SAID),
        (b"max-age=" + b"9" * 4000, Control(max_age_s=999_999_999_999)),
        ("max-age=²".encode("latin-1"), NOTHING_SAID),
    ],
)
def test_cache_control(value: bytes, control: Control) -> None:
    assert read_control([(b"accept", b"x"), (b"cache-control", value)]) == control


@given(st.lists(st.binary(max_size=30)))
def test_any_header_is_read(values: list[bytes]) -> None:
    read_control([(b"cache-control", v) for v in values])


@pytest.mark.parametrize(
    ("body", "yes"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": False}, False),
        ({"temperature": 0.1}, False),
        ({}, False),
        ({"seed": 0}, True),
        ({"seed": None}, False),
        ({"seed": 1, "temperature": 2}, True),
        ({"temperature": 0, "stream_options": {"include_usage": True}}, True),
        ({"temperature": 0, "stream_options": {"continuous_usage_stats": True}}, False),
        ({"temperature": 0, "kv_transfer_params": {"a": 1}}, False),
    ],
)
def test_by_itself(body: dict[str, Any], yes: bool) -> None:
    assert cacheable(CHAT, body, NOTHING_SAID, "deterministic") is yes


@pytest.mark.parametrize(
    ("endpoint", "control", "requests", "yes"),
    [
        (CHAT, NOTHING_SAID, "all", True),
        (CHAT, Control(max_age_s=3), "deterministic", True),
        (CHAT, Control(max_age_s=0), "deterministic", False),
        (CHAT, Control(max_age_s=3), "none", False),
        (CHAT, Control(no_store=True, max_age_s=3), "all", False),
        (EMBEDDINGS, NOTHING_SAID, "deterministic", True),
        (ENDPOINTS[b"/v1/responses"], NOTHING_SAID, "all", True),
        (ENDPOINTS[b"/v1/messages"], NOTHING_SAID, "all", True),
        (ENDPOINTS[b"/v1/messages/count_tokens"], NOTHING_SAID, "all", False),
        (ENDPOINTS[b"/tokenize"], NOTHING_SAID, "all", False),
        (OTHER, NOTHING_SAID, "all", False),
    ],
)
def test_otherwise(endpoint: Endpoint, control: Control, requests: Requests, yes: bool) -> None:
    assert cacheable(endpoint, {}, control, requests) is yes
