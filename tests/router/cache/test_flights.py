"""One asks, the others wait, each for itself."""

from __future__ import annotations

import asyncio
import time

import pytest

from router.cache.entry import Entry
from router.cache.flights import MOST_REMEMBERED, REMEMBERED_S, Flights

ENTRY = Entry("chat.completions", "fp16", "m", 1, 2, 3, b"x")


async def test_all_who_wait_get_what_came() -> None:
    flights = Flights()
    flight = flights.begin("k")
    waits = [asyncio.create_task(flight.wait(5)) for _ in range(3)]
    await asyncio.sleep(0)
    assert flight.waiting == 3
    waits[0].cancel()
    flights.end("k", flight, ENTRY)
    flights.end("k", flight, "alone")
    assert await asyncio.gather(*waits[1:]) == [ENTRY, ENTRY]
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
    assert len(flights) == 0
    assert flight.waiting == 0
    assert await flight.wait(0) == ENTRY


async def test_nobody_waits_for_ever() -> None:
    assert await Flights().begin("k").wait(0.01) == "alone"


async def test_the_end_of_an_old_flight_leaves_a_new_one() -> None:
    flights = Flights()
    old = flights.begin("k")
    flights.end("k", old, "left")
    new = flights.begin("k")
    flights.end("k", old, "left")
    assert flights.find("k") is new


async def test_after_an_answer_that_cannot_be_shared_nobody_waits_for_a_while() -> None:
    flights = Flights()
    now = time.monotonic()
    flights.end("k", flights.begin("k"), "alone")
    flights.end("other", flights.begin("other"), ENTRY)
    assert flights.useless("k", now)
    assert not flights.useless("other", now)
    assert not flights.useless("k", now + REMEMBERED_S + 5)
    assert not flights.useless("k", now)
    for n in range(MOST_REMEMBERED + 5):
        flights.end(str(n), flights.begin(str(n)), "alone")
    assert not flights.useless("0", now)
    assert flights.useless(str(MOST_REMEMBERED + 4), now)
