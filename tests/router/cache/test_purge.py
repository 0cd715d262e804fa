"""Which names a selection means."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cache.key import Place, request_key
from router.cache.purge import Selection

GROUPS = st.text("ab*?[]^:{}%你 /\\", min_size=1, max_size=6)


@given(GROUPS, GROUPS)
def test_a_group_means_itself_alone(group: str, other: str) -> None:
    key = request_key(b"/p", b"{}", {}, Place(group, None, "t", ""))
    assert key is not None
    pattern = Selection(group=other).pattern().replace("[cs]", "c")
    assert fnmatch.fnmatchcase(key.entry, pattern) == (group == other)


def test_all_that_is_given_counts() -> None:
    assert Selection().pattern() == "bitgear:[cs]1:*:*:{*}"
    assert Selection("g", "t", "k-_=").pattern() == "bitgear:[cs]1:g:t:{k-_=}"


@pytest.mark.parametrize("bad", ["", "*", "a*", "a b", "[a]", "a\\", "x" * 65])
def test_tenants_and_keys_are_no_patterns(bad: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        Selection(tenant=bad).pattern()
    with pytest.raises(ValueError, match="key"):
        Selection(key=bad).pattern()
