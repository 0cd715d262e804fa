from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulator.pattern import UnsupportedPatternError, example


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{3}-\d{4}$",
        r"^[A-Z][a-z]+( [A-Z][a-z]+)*$",
        r"^(yes|no)$",
        r"^(?:a|b){2,3}c?$",
        r"^[^a-z]$",
        r"^[\w.+-]+@\w+\.\w{2,}$",
        r"^(?P<year>[12]\d{3})$",
        r"^\(\[\]\)$",
        r"^[]x]$",
        r"^[\u4e00-\u9fff]{2}$",
        r"a|b",
        r"",
        r"^x{0}y$",
    ],
)
def test_the_pattern_matches_its_example(pattern: str) -> None:
    assert re.search(pattern, example(pattern))


@pytest.mark.parametrize("pattern", ["(", "[", "(?=b)a", r"^(a)\1b$", "x{5000}"])
def test_patterns_without_an_example(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        example(pattern)


@given(st.text(r"ab01()[]|*+?{},^$.\dw-", max_size=14))
def test_any_pattern_has_a_matching_example_or_none(pattern: str) -> None:
    try:
        found = example(pattern)
    except UnsupportedPatternError:
        return
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        assert re.search(pattern, found)


@pytest.mark.parametrize("pattern", ["[[]", "[a&&b]", "[+--]"])
def test_nothing_is_said_of_a_pattern_that_python_will_read_otherwise_one_day(pattern: str) -> None:
    # `re` warns once for each pattern it has not read before.
    re.purge()
    with pytest.warns(FutureWarning):
        re.compile(pattern)
    re.purge()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = example(pattern)
    with warnings.catch_warnings(action="ignore"):
        assert re.search(pattern, found)
