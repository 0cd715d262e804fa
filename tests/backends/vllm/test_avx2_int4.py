from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from backends.vllm import avx2_int4
from backends.vllm.engine import PLUGIN


def test_it_is_announced_to_vllm() -> None:
    (entry,) = (e for e in metadata.entry_points(group="vllm.general_plugins") if e.name == PLUGIN)
    assert entry.value == "backends.vllm.avx2_int4:register"


def test_loading_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, backends.vllm.avx2_int4; print(sorted({'torch', 'vllm', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("rows", "group"), [(64, 64), (64, 32), (64, 16), (24, 64)], ids=["64", "32", "no group", "no rows"]
)
@pytest.mark.parametrize("zero_points", [False, True])
def test_layers_multiply_as_their_dequantized_weights(rows: int, group: int, zero_points: bool) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("vllm")
    from vllm.scalar_type import scalar_types

    columns = 128
    generator = torch.Generator().manual_seed(rows + group)
    values = torch.randint(0, 16, (columns, rows), generator=generator, dtype=torch.int32)
    points = torch.randint(0, 16, (columns // group, rows), generator=generator, dtype=torch.int32)
    scale = torch.rand((columns // group, rows), generator=generator).to(torch.bfloat16)
    config = SimpleNamespace(
        weight_type=scalar_types.uint4 if zero_points else scalar_types.uint4b8,
        zero_points=zero_points,
        act_type=torch.bfloat16,
    )
    kernel = SimpleNamespace(config=config, w_q_name="q", w_s_name="s", w_zp_name="z" if zero_points else None)
    layer = SimpleNamespace(
        q=_parameter(torch, _packed(torch, values, 0), input_dim=0),
        s=_parameter(torch, scale, output_dim=1),
        z=_parameter(torch, _packed(torch, points, 1), output_dim=1),
    )
    zero = points if zero_points else torch.full_like(points, 8)
    wide = [t.float().repeat_interleave(group, dim=0) for t in (zero, scale)]
    expected_weight = (values.float() - wide[0]) * wide[1]

    avx2_int4.process_weights(kernel, layer)
    x = torch.randn((2, 3, columns), generator=generator).to(torch.bfloat16)
    bias = torch.ones(rows, dtype=torch.bfloat16)
    result = avx2_int4.apply_weights(kernel, layer, x, bias).float()
    expected = x.float() @ expected_weight + 1
    assert result.shape == (2, 3, rows)
    assert float((result - expected).abs().max() / expected.abs().max()) < 0.02
    # The dense way is taken only where torch has no kernel.
    assert (layer.int4_scales is None) == (rows == 24 or group == 16)


def _parameter(torch: Any, data: Any, **marks: int) -> Any:
    parameter = torch.nn.Parameter(data, requires_grad=False)
    for name, value in marks.items():
        setattr(parameter, name, value)
    return parameter


def _packed(torch: Any, values: Any, dim: int) -> Any:
    """Eight values a word along `dim`, the first in the lowest bits."""
    moved = values.to(torch.int64).movedim(dim, -1)
    parts = moved.reshape(*moved.shape[:-1], -1, 8)
    words = sum(parts[..., i] << (4 * i) for i in range(8))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).movedim(-1, dim).contiguous()
