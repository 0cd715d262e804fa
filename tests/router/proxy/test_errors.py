"""Errors in the client's own format, as its SDK expects them."""

from __future__ import annotations

import json

import openai
import pytest

from router.proxy.errors import ApiError, bad_field


def test_openais_shape() -> None:
    error = bad_field("n", "expected an integer", "invalid_type")
    assert json.loads(error.body()) == {
        "error": {
            "message": "n: expected an integer",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_type",
        }
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
    ],
)
def test_every_status_has_its_type(status: int, kind: str) -> None:
    assert json.loads(ApiError(status, "x").body())["error"]["type"] == kind


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (503, "api_error")]
)
def test_anthropics_shape(status: int, kind: str) -> None:
    body = {"type": "error", "error": {"type": kind, "message": "x"}}
    error = ApiError(status, "x", "p", "c")
    assert json.loads(error.body("anthropic")) == body
    head, data = error.event("anthropic").removesuffix(b"\n\n").split(b"\n")
    assert head == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == body


def test_within_a_stream_it_is_an_event_that_the_openai_client_raises() -> None:
    event = ApiError(502, "broke off", None, "stream_broken").event("openai")
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert json.loads(event[6:])["error"]["code"] == "stream_broken"
    with pytest.raises(openai.APIError, match="broke off"):
        _read_with_the_openai_client(event)


def _read_with_the_openai_client(event: bytes) -> None:
    import httpx

    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, content=event)
    )
    client = openai.OpenAI(base_url="http://h/v1", api_key="x", http_client=httpx.Client(transport=transport))
    for _ in client.chat.completions.create(model="m", messages=[], stream=True):
        pass


def test_the_responses_api_has_its_own_event() -> None:
    head, data = ApiError(502, "x", None, "c").event("responses").removesuffix(b"\n\n").split(b"\n")
    assert head == b"event: error"
    assert json.loads(data[6:]) == {"type": "error", "code": "c", "message": "x", "param": None}


@pytest.mark.parametrize(
    ("seconds", "header"), [(None, []), (0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.01, b"2"), (59.5, b"60")]
)
def test_retry_after_is_whole_seconds_and_never_zero(seconds: float | None, header: bytes | list[object]) -> None:
    assert ApiError(503, "x", retry_after_s=seconds).headers() == (header and [(b"retry-after", header)])


def test_odd_characters_stay_json() -> None:
    assert json.loads(ApiError(404, 'no "model" \x00 你好\n').body())["error"]["message"] == 'no "model" \x00 你好\n'
