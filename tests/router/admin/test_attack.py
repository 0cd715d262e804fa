"""The OpenAPI description, attacked: whatever schemathesis makes of it, no answer is a failure of ours."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.conftest import TOKEN
from tests.router.admin.conftest import Operator

schemathesis = pytest.importorskip("schemathesis")
EXAMPLES = 3
"""Requests for each operation, as described and otherwise."""

HEADERS = {"authorization": f"Bearer {TOKEN}", "if-match": "*"}


def attack(described: dict[str, Any], url: str) -> list[int]:
    """Every operation with made-up values; the statuses that came."""
    statuses: list[int] = []
    operations = [found.ok() for found in schemathesis.openapi.from_dict(described).get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for operation, mode in itertools.product(operations, modes):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def one(case: Any) -> None:
            response = case.call(base_url=url, headers=HEADERS, timeout=30)
            statuses.append(response.status_code)
            assert response.status_code < 500, (case.method, case.formatted_path, case.query, case.body, response.text)

        # An operation without parameters and body has nothing that could be wrong.
        with contextlib.suppress(Unsatisfiable):
            one()
    return statuses


async def test_no_made_up_request_ends_in_a_failure_of_ours(operator: Operator) -> None:
    described = (await operator("GET", "/openapi.json")).json()
    url = f"{operator.http.base_url.scheme}://{operator.http.base_url.host}:{operator.http.base_url.port}"
    statuses = await asyncio.to_thread(attack, described, url)
    assert len(statuses) > 30
    assert {200, 422} <= set(statuses)
    # It still serves, and can still be changed.
    assert (await operator("POST", "/admin/rollback", {"version": 0})).status_code == 200
    assert (await operator("GET", "/healthz")).status_code == 200
