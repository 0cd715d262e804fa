"""Units of fields, by their names."""

from __future__ import annotations

import pytest

from router.config.describe import unit


@pytest.mark.parametrize(
    ("name", "word"),
    [("timeout_s", "seconds"), ("max_per_s", "per second"), ("bandwidth_gb_s", "GB/s"), ("tenant", "")],
)
def test_a_rate_is_no_time(name: str, word: str) -> None:
    assert unit(name) == word
