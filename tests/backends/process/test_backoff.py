from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from backends.process.backoff import Backoff


def test_it_doubles_up_to_its_bound() -> None:
    plain = Backoff(first_s=1, factor=2, max_s=10, jitter=0)
    assert [plain.delay(n, random.Random(0)) for n in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10_000), st.integers())
def test_it_stays_within_its_jitter(failures: int, seed: int) -> None:
    delay = Backoff().delay(failures, random.Random(seed))
    assert 0.8 <= delay <= 60 * 1.2


def test_servers_do_not_start_in_step() -> None:
    assert len({Backoff().delay(3, random.Random(seed)) for seed in range(10)}) == 10
