"""Accounts a moment later: each once, in order, several at once, and none is lost by another's failure."""

from __future__ import annotations

import asyncio
import logging

import pytest

from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.telemetry import later
from router.telemetry.later import Later
from tests.conftest import until

LOG = logging.getLogger("test")


def outcome(number: int) -> Outcome:
    return Outcome(str(number), CHAT, 0.0)


async def test_they_wait_for_company_then_all_are_made_in_order() -> None:
    made: list[str] = []
    accounts = Later(lambda one: made.append(one.request_id), LOG)
    for number in range(3):
        accounts.put(outcome(number))
    assert made == []
    await until(lambda: len(made) == 3)
    assert made == ["0", "1", "2"]
    accounts.put(outcome(3))
    await until(lambda: len(made) == 4)


async def test_as_many_as_may_wait_are_made_at_once() -> None:
    made: list[str] = []
    accounts = Later(lambda one: made.append(one.request_id), LOG)
    for number in range(later.MOST - 1):
        accounts.put(outcome(number))
    assert made == []
    accounts.put(outcome(later.MOST - 1))
    assert made == [str(number) for number in range(later.MOST)]


async def test_settle_makes_them_now_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "WAIT_S", 0.01)
    made: list[str] = []
    accounts = Later(lambda one: made.append(one.request_id), LOG)
    accounts.put(outcome(1))
    accounts.settle()
    assert made == ["1"]
    await asyncio.sleep(0.03)
    assert made == ["1"]


async def test_a_failure_is_logged_and_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    made: list[str] = []

    def account(one: Outcome) -> None:
        if one.request_id == "1":
            raise ValueError("broken")
        made.append(one.request_id)

    accounts = Later(account, LOG)
    for number in range(3):
        accounts.put(outcome(number))
    accounts.settle()
    assert made == ["0", "2"]
    assert [r.getMessage() for r in caplog.records] == ["accounts of a request failed: id=1"]
