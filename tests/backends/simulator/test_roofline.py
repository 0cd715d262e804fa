"""The arithmetic of a step, by hand for an 8-billion model on an H100."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.settings import PRECISION_BITS, Precision, SimulatorSettings
from backends.simulator.roofline import Roofline, bits_per_weight, kv_bytes_per_token

_EXACT = SimulatorSettings(efficiency=1.0, overhead_ms=0.0)


@pytest.mark.parametrize(
    ("precision", "bits"),
    [("fp32", 32), ("bf16", 16), ("fp8", 8), ("int8", 8), ("mxfp4", 4.25), ("nvfp4", 4.5), ("int4", 4.125)],
)
def test_bits_of_a_weight_with_its_share_of_scales(precision: Precision, bits: float) -> None:
    assert bits_per_weight(_EXACT, precision) == bits


def test_the_group_size_decides_what_int4_scales_take() -> None:
    assert bits_per_weight(SimulatorSettings(group_size=64), "int4") == 4.25


def test_keys_and_values_of_one_token() -> None:
    # 2 (key, value) x 36 layers x 8 heads x 128 x 2 bytes
    assert kv_bytes_per_token(_EXACT) == 147_456


def test_one_sequence_is_bound_by_reading_the_weights() -> None:
    assert Roofline.of(_EXACT, "fp16").step_s(1, 0, 1) == pytest.approx(16e9 / 3.35e12, rel=1e-3)
    assert Roofline.of(_EXACT, "int4").step_s(1, 0, 1) == pytest.approx(4.125e9 / 3.35e12, rel=1e-3)


def test_a_long_prompt_is_bound_by_arithmetic_at_the_precisions_own_peak() -> None:
    linear = 2 * 8e9 * 4096
    assert Roofline.of(_EXACT, "int4").step_s(4096, 0, 0) == pytest.approx(linear / 989e12)
    assert Roofline.of(_EXACT, "int8").step_s(4096, 0, 0) == pytest.approx(linear / (2 * 989e12))


def test_the_cache_is_read_in_16_bits_at_every_precision() -> None:
    for precision in ("fp16", "int8", "int4"):
        roofline = Roofline.of(_EXACT, precision)
        more = roofline.step_s(1, 100_000, 1) - roofline.step_s(1, 0, 1)
        assert more == pytest.approx(100_000 * 147_456 / 3.35e12, rel=1e-3)


def test_int4_wins_alone_and_int8_in_a_large_batch() -> None:
    speed = {
        precision: {
            batch: Roofline.of(SimulatorSettings(), precision).decode_tokens_per_s(batch, 512) for batch in (1, 512)
        }
        for precision in ("fp16", "int8", "int4")
    }
    assert speed["int4"][1] > speed["int8"][1] > speed["fp16"][1]
    assert speed["int8"][512] > speed["int4"][512]


def test_settings_that_name_a_peak_factor_are_believed() -> None:
    assert Roofline.of(SimulatorSettings(peak_factor=4.0), "nvfp4").peak == 4 * 989e12


@given(
    precision=st.sampled_from(sorted(PRECISION_BITS)),
    tokens=st.integers(1, 10_000),
    kv=st.integers(0, 10**6),
    more=st.integers(1, 10_000),
)
def test_more_work_never_takes_less_time(precision: Precision, tokens: int, kv: int, more: int) -> None:
    roofline = Roofline.of(SimulatorSettings(), precision)
    assert roofline.step_s(tokens + more, kv, kv) >= roofline.step_s(tokens, kv, kv) > 0
    assert roofline.step_s(tokens, kv + more, kv) >= roofline.step_s(tokens, kv, kv)
