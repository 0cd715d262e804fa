"""Large bodies: what is taken out comes back byte for byte, and nothing but data is taken out."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy.json_body import parse_body, with_model, with_usage
from router.proxy.large import lighten

DATA = base64.b64encode(bytes(range(256)) * 300).decode()
URL = f"data:image/png;base64,{DATA}"


def light(raw: bytes) -> Any:
    return asyncio.run(lighten(raw))


def body(*parts: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"model": "g", **more, "messages": [{"role": "user", "content": list(parts)}]}).encode()


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def test_images_go_and_come_back_in_their_places() -> None:
    raw = body({"type": "text", "text": 'say \\" and "x"'}, image(URL), image(URL[:-4] + "AAA="), stream=True)
    found = light(raw)
    assert len(found.skeleton) < 1000
    assert found.whole(found.skeleton) == raw
    parsed = parse_body(found.skeleton)
    assert [p["type"] for p in parsed["messages"][0]["content"]] == ["text", "image_url", "image_url"]
    assert parsed["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    changed = with_usage(with_model(found.skeleton, parsed, "served"), {**parsed, "model": "served"})
    again = json.loads(found.whole(changed))
    assert again == {**json.loads(raw), "model": "served", "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    "raw",
    [
        body({"type": "text", "text": DATA}),
        body(image("data:image/png;base64," + DATA[:60_000])),
        body(image(URL + " ")),
        body(image(URL + "é")),
        body({"type": "text", "text": '"url":'}, {"type": "text", "text": DATA}),
        json.dumps({"prompt": DATA}).encode(),
        b'{"url":"' + DATA.encode(),
        b'{"url":"' + DATA.encode() + b'\\"',
        b"",
        b'"' * 10,
    ],
)
def test_what_is_no_data_stays(raw: bytes) -> None:
    assert light(raw) is None


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.just(URL),
        lambda c: st.lists(c) | st.dictionaries(st.text() | st.just("url"), c),
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_body_comes_back(value: Any, ascii_only: bool) -> None:
    raw = json.dumps({"a": value, "url": URL}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = light(raw)
    assert found is not None
    assert found.whole(found.skeleton) == raw


def test_bad_json_around_data_is_still_refused() -> None:
    raw = body(image(URL))
    for wrong in (raw[:-1], raw + b"x", raw.replace(b'"g"', b"NaN")):
        found = light(wrong)
        with pytest.raises(Exception, match="not valid JSON"):
            parse_body(found.skeleton)
