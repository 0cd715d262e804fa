from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backends.vllm import rtn

FLOATS = st.floats(-100, 100, width=32)
MATRICES = st.tuples(st.integers(1, 6), st.sampled_from([32, 64, 128])).flatmap(
    lambda s: arrays(np.float32, s, elements=FLOATS)
)


@given(MATRICES)
def test_int8_is_off_by_half_a_step_at_most(weight: np.ndarray) -> None:
    values, scale = rtn.int8_per_channel(weight)
    assert values.dtype == np.int8
    assert scale.shape == (weight.shape[0], 1)
    assert np.all(np.abs(weight - values * scale) <= scale * 0.5 + 1e-4)


@given(MATRICES)
def test_int4_is_off_by_half_a_step_at_most(weight: np.ndarray) -> None:
    values, scale = rtn.int4_groups(weight, 32)
    assert scale.shape == (weight.shape[0], weight.shape[1] // 32)
    assert values.min() >= -8
    assert values.max() <= 7
    wide = scale.repeat(32, axis=1)
    assert np.all(np.abs(weight - values * wide) <= wide * 0.5 + 1e-4)


@given(st.integers(1, 4), st.integers(1, 8), st.randoms())
def test_packing_is_undone(rows: int, words: int, random: object) -> None:
    values = np.random.default_rng(rows * 100 + words).integers(-8, 8, (rows, 8 * words)).astype(np.int8)
    packed = rtn.pack_int4(values)
    assert packed.shape == (rows, words)
    assert packed.dtype == np.int32
    assert np.array_equal(rtn.unpack_int4(packed), values)


def test_the_first_value_has_the_lowest_bits() -> None:
    packed = rtn.pack_int4(np.array([[-8, -7, 0, 7, -8, -8, -8, -8]], np.int8))
    assert int(packed.view(np.uint32)[0, 0]) == 0x0000F810


def test_a_row_of_zeros_stays_zero() -> None:
    for values, scale in (
        rtn.int8_per_channel(np.zeros((2, 32), np.float32)),
        rtn.int4_groups(np.zeros((2, 32), np.float32), 32),
    ):
        assert not values.any()
        assert np.isfinite(scale).all()


@pytest.mark.parametrize(("widths", "group"), [([4096, 11008], 128), ([576, 1536], 64), ([576, 1536, 96], 32)])
def test_group_is_the_largest_that_fits_all(widths: list[int], group: int) -> None:
    assert rtn.group_size_for(widths) == group


def test_no_group_is_an_error_that_names_the_widths() -> None:
    with pytest.raises(ValueError, match=r"\[100, 4096\]"):
        rtn.group_size_for([4096, 100])


def test_relative_error() -> None:
    one = np.ones((2, 2), np.float32)
    assert rtn.relative_error(one, one) == 0
    assert rtn.relative_error(one, one * 0.9) == pytest.approx(0.1, rel=1e-3)
    assert rtn.relative_error(one * 0, one) == 0
