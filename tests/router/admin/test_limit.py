"""No request of the admin API brings more than it may, whether it tells how much it is or not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from router.admin import limit
from tests.router.admin.conftest import Operator

PATH = "/admin/groups/g/classifier"


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "MOST", 10_000)


async def pieces(count: int) -> AsyncIterator[bytes]:
    yield b'{"x": "'
    for _ in range(count):
        yield b"x" * 1000
    yield b'"}'


@pytest.mark.parametrize("told", [True, False])
async def test_a_body_that_is_too_large_is_refused(operator: Operator, told: bool) -> None:
    headers = {"content-type": "application/json"}
    for count, status in ((8, 422), (11, 413)):
        body = b"".join([piece async for piece in pieces(count)]) if told else pieces(count)
        answer = await operator.http.put(PATH, content=body, headers=headers)
        assert answer.status_code == status, answer.text
        if status == 413:
            assert "larger than" in answer.json()["error"]["message"]
    # Whoever asks next is served.
    assert (await operator("GET", PATH)).status_code == 200
