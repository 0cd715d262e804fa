"""The OpenAPI description, attacked: whatever schemathesis makes of it, no answer is a failure of ours."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from importlib.util import find_spec
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.conftest import TOKEN
from tests.router.admin.conftest import Operator

# Looked for, not imported: that takes seconds, in every process that collects this module.
pytestmark = pytest.mark.skipif(find_spec("schemathesis") is None, reason="not installed")
EXAMPLES = 2
"""Requests for each operation, as described and otherwise."""

HEADERS = {"authorization": f"Bearer {TOKEN}", "if-match": "*"}


def can_be_wrong(described: dict[str, Any], method: str, path: str) -> bool:
    """Whether a request can be unlike its description: any text in a path is like it, and a search for others takes seconds."""
    operation = described["paths"][path][method.lower()]
    parameters = [*described["paths"][path].get("parameters", ()), *operation.get("parameters", ())]
    return "requestBody" in operation or any(
        one["in"] != "path" or set(one["schema"]) - {"type", "title"} for one in parameters
    )


def attack(described: dict[str, Any], url: str) -> list[int]:
    """Every operation with made-up values; the statuses that came."""
    import schemathesis

    statuses: list[int] = []
    operations = [found.ok() for found in schemathesis.openapi.from_dict(described).get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    session = requests.Session()
    for operation, mode in itertools.product(operations, modes):
        varied = can_be_wrong(described, operation.method, operation.path)
        if mode is schemathesis.GenerationMode.NEGATIVE and not varied:
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES if varied else 1,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def one(case: Any) -> None:
            response = case.call(base_url=url, headers=HEADERS, timeout=30, session=session)
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
