"""Whatever breaks in the admin API is answered in its one shape, and logged."""

from __future__ import annotations

import logging

import httpx
import pytest
from fastapi import FastAPI

from router.admin.problems import install


async def test_an_unforeseen_error_has_the_usual_shape_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    install(app)

    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("inside")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
        with caplog.at_level(logging.ERROR, "bitgear"):
            answer = await client.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "Bitgear failed on this request; its log says why."
    assert "inside" not in answer.text
    assert "GET /broken" in caplog.text
    assert "ZeroDivisionError: inside" in caplog.text
