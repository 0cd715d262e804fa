from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.vllm.progress import progress_of

SERVER = "(APIServer pid=1) INFO 11-30 08:02:15"
CORE = "(EngineCore pid=2) INFO 11-30 08:02:33"


@pytest.mark.parametrize(
    ("lines", "phrase"),
    [
        ([], "importing"),
        (["Triton is installed, but doesn't include CPU backend."], "importing"),
        ([f"{SERVER} [api_utils.py:286] non-default args: {{'port': 1}}"], "reading the configuration"),
        ([f"{SERVER} [model.py:733] Resolved architecture: LlamaForCausalLM"], "starting the engine's process"),
        ([f"{CORE} [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config"], "starting the engine"),
        (["Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:00<?, ?it/s]"], "loading weights 25 %"),
        ([f"{CORE} [default_loader.py:501] Loading weights took 0.62 seconds"], "profiling memory"),
        ([f"{CORE} [kv_cache_utils.py:2327] CPU KV cache size: 46,592 tokens"], "making the KV cache"),
        ([f"{CORE} [core.py:402] init engine (profile, create kv cache, warmup model) took 2.57 s"], "warmed up"),
        ([f"{SERVER} [entry.py:140] Starting vLLM server on http://127.0.0.1:9102"], "opening its address"),
        (["INFO:     Application startup complete."], "serving"),
        (["Loading safetensors checkpoint shards:  25% Completed", "noise", ""], "loading weights 25 %"),
        (
            [
                f"{CORE} [core.py:133] Initializing a V1 LLM engine",
                "Traceback (most recent call last):",
                "ValueError: no room",
            ],
            "failed: ValueError: no room",
        ),
        (
            [
                f"{SERVER} [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.",
            ],
            "importing",
        ),
    ],
)
def test_the_last_step_counts(lines: list[str], phrase: str) -> None:
    assert progress_of("\n".join(lines)) == phrase


@given(st.text())
def test_any_log_gives_a_short_phrase(text: str) -> None:
    assert 0 < len(progress_of(text)) <= 200
