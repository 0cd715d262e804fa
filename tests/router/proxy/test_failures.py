"""What a replica's refusal means for others, and what the client is told at the end."""

from __future__ import annotations

import json
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.wire import UpstreamError
from router.proxy.failures import Refused, classify, is_client_error, retry_after_s, to_client
from tests.support.wire import error_body

LONG = "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens."
WIDE = "max_tokens=5000 cannot be greater than max_model_len=512. Please request fewer output tokens."


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, b"", "overloaded"),
        (503, b"{}", "overloaded"),
        (500, b"", "broken"),
        (502, b"<html>", "broken"),
        (504, b"", "broken"),
        (401, b"", "broken"),
        (403, b"", "broken"),
        (400, error_body(LONG), "too_long"),
        (400, error_body(WIDE), "too_long"),
        (400, json.dumps({"error": {"message": "x", "code": "context_length_exceeded"}}).encode(), "too_long"),
        (400, error_body("temperature must be non-negative"), None),
        (400, b"", None),
        (400, b"[1]", None),
        (400, b'{"error":"maximum context length"}', None),
        (404, error_body("no such model"), None),
        (422, b"{}", None),
    ],
)
def test_refusals(status: int, body: bytes, kind: str | None) -> None:
    refused = classify(status, [], body)
    assert (refused.kind if refused else None) == kind


def test_a_refusals_line_for_the_log_does_not_quote_the_body() -> None:
    assert str(Refused("broken", 500, [], b"the prompt was: secret")) == "the replica answered HTTP 500"


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("soon", None),
        ("", None),
        ("Mon, 99 Foo 2026 99:99:99 GMT", None),
        ("Mon, 99999999999999999999 Jan 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_s([(b"x", b"1"), (b"retry-after", value.encode())], NOW) == seconds


def test_without_retry_after_there_is_none() -> None:
    assert retry_after_s([(b"content-type", b"x")], NOW) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40) | st.text(st.sampled_from("0123456789:, GMTonFebSepAu+-."), max_size=30).map(str.encode))
def test_any_retry_after_is_a_wait_or_none(value: bytes) -> None:
    seconds = retry_after_s([(b"retry-after", value)], NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UpstreamError("connect", "x"), 502, "upstream_error"),
        (UpstreamError("closed", "x"), 502, "upstream_error"),
        (UpstreamError("protocol", "x"), 502, "upstream_error"),
        (UpstreamError("connect_timeout", "x"), 504, "connect_timeout"),
        (UpstreamError("first_token_timeout", "x"), 504, "first_token_timeout"),
        (UpstreamError("total_timeout", "x"), 504, "total_timeout"),
        (Refused("overloaded", 429, [], b""), 429, "rate_limit_exceeded"),
        (Refused("overloaded", 503, [], b""), 503, "overloaded"),
        (Refused("broken", 500, [], b"secret"), 502, "upstream_error"),
        (Refused("broken", 401, [], b"secret"), 502, "upstream_auth"),
    ],
)
def test_what_the_client_is_told(error: UpstreamError | Refused, status: int, code: str) -> None:
    told = to_client(error, 7.0)
    assert (told.status, told.code) == (status, code)
    assert "secret" not in told.message
    assert told.headers() == ([(b"retry-after", b"7")] if status in (429, 503) else [])


@pytest.mark.parametrize(
    ("event", "blames_the_request"),
    [
        ('{"code":400}', True),
        ('{"code":422}', True),
        ('{"code":500}', False),
        ('{"code":"x"}', False),
        ("[]", False),
        ("x", False),
        ('"x"', False),
        ('{"code":40', False),
    ],
)
def test_errors_in_a_stream_blame_the_request_or_the_replica(event: str, blames_the_request: bool) -> None:
    assert is_client_error(event) == blames_the_request
