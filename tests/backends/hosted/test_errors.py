from __future__ import annotations

import json

import pytest

from backends.hosted.errors import HostedError, error_of


def test_the_body_is_openais() -> None:
    error = HostedError(429, "slow down", "model", "3")
    assert json.loads(error.body()) == {
        "error": {"message": "slow down", "type": "RateLimitError", "param": "model", "code": 429}
    }
    assert error.event() == b"data: " + error.body() + b"\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(
    ("status", "kind"), [(418, "BadRequestError"), (599, "InternalServerError"), (504, "GatewayTimeoutError")]
)
def test_every_status_has_a_type(status: int, kind: str) -> None:
    assert json.loads(HostedError(status, "x").body())["error"]["type"] == kind


def test_secrets_are_removed_wherever_they_appear() -> None:
    assert error_of(ValueError("sk-1 and sk-2 and sk-1"), ("sk-1", "sk-2", "")).message == "*** and *** and ***"


def test_an_exception_is_one_that_can_be_raised_through_context_managers() -> None:
    with pytest.raises(HostedError):
        raise HostedError(500, "x") from ValueError("y")
