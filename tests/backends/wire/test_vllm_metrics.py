"""Reading a server's `/metrics`: vLLM's names old and new, several engines, and whatever else may stand there."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from backends.wire import VllmMetrics, parse_vllm_metrics

TEXT = b"""# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0"} 1e3
vllm:generation_tokens_total{engine="0"} 1234.0
vllm:num_preemptions_total 1.0
process_cpu_seconds_total 9.0
"""


def test_engines_are_added_up_and_the_fullest_cache_counts() -> None:
    assert parse_vllm_metrics(TEXT) == VllmMetrics(5.0, 4.0, 0.75, 1000.0, 1234.0, 1.0)


def test_the_old_name_of_the_cache_is_known() -> None:
    found = parse_vllm_metrics(b'vllm:gpu_cache_usage_perc{model_name="a b {x} 9"} 0.5\n')
    assert found is not None
    assert found.kv_cache_usage == 0.5


def test_another_server_has_no_figures() -> None:
    assert parse_vllm_metrics(b"go_goroutines 9\nhttp_requests_total 1\n") is None
    assert parse_vllm_metrics(b"") is None


@given(
    st.lists(st.sampled_from([b"vllm:num_requests_running", b"{", b"}", b" ", b"NaN", b"+Inf", b"1", b"\n", b"\xff"]))
)
def test_whatever_comes_the_figures_are_numbers(parts: list[bytes]) -> None:
    found = parse_vllm_metrics(b"".join(parts))
    if found is not None:
        assert math.isfinite(found.running)
