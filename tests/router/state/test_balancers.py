"""Every balancer picks an index that is there; each keeps its own promise."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.schema import Config
from router.state.balancers import BALANCERS


@pytest.mark.parametrize("name", sorted(BALANCERS))
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 10**6))
def test_any_pick_is_an_index_and_can_be_repeated(name: str, loads: list[float], turn: int) -> None:
    index = BALANCERS[name](loads, turn)
    assert 0 <= index < len(loads)
    assert BALANCERS[name](loads, turn) == index
    if name == "least_loaded":
        assert loads[index] == min(loads)
    if name == "power_of_two" and len(loads) > 1:
        assert loads[index] < max(loads) or loads.count(max(loads)) > 1


@pytest.mark.parametrize("name", sorted(BALANCERS))
def test_equal_loads_are_spread_evenly(name: str) -> None:
    counts = Counter(BALANCERS[name]([2.0] * 4, turn) for turn in range(4000))
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 800


def test_the_configuration_offers_just_these() -> None:
    offered = Config.model_json_schema()["properties"]["balancer"]["enum"]
    assert sorted(offered) == sorted(BALANCERS)
