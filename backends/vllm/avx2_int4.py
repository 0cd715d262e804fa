"""A vLLM plug-in: INT4 weights on CPUs whose build of vLLM has no kernel for them.

vLLM's AVX2 build lacks the op `cpu_gemm_wna16`: an INT4 checkpoint loads, `/health` answers 200, and the first request
kills the engine. Here these layers run on torch's own INT4 kernel (`aten::_weight_int4pack_mm_for_cpu`), which computes
`x @ ((q - 8) * scale + zero)` per group of inputs. Where the op is there, and on GPUs, nothing is touched.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`). Nothing of vLLM or torch is
imported before that.
"""

from __future__ import annotations

from typing import Any

KERNEL_GROUPS = (32, 64, 128, 256)
"""Group sizes that torch's kernel has."""
KERNEL_ROWS = 16
"""Output widths must be a multiple of this."""


def register() -> None:
    """Give vLLM's CPU kernel for 4-bit weights another engine, if its own is missing. Safe to call again."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    import torch

    if hasattr(torch.ops._C, "cpu_gemm_wna16"):
        return
    from vllm.model_executor.kernels.linear.mixed_precision import cpu

    kernel = cpu.CPUWNA16LinearKernel
    kernel.process_weights_after_loading = process_weights
    kernel.apply_weights = apply_weights


def process_weights(kernel: Any, layer: Any) -> None:
    """Repack one layer's weights after loading: `[K, N]` 4-bit values to torch's packing, scales and zeros side by side.

    Takes the place of the kernel class's method of the same meaning. Shapes that torch's kernel doesn't have are kept
    as dense weights: right, at the cost of memory.
    """
    import torch
    from vllm.model_executor.layers.quantization.utils.quant_utils import unpack_quantized_values_into_int32

    config = kernel.config
    if getattr(config, "has_g_idx", False):
        raise NotImplementedError("INT4 with activation order (g_idx) has no CPU kernel; quantize without it")
    weight = getattr(layer, kernel.w_q_name)
    packed = weight.data.t() if weight.input_dim == 1 else weight.data
    values = unpack_quantized_values_into_int32(packed.contiguous(), config.weight_type, 0)
    scales = getattr(layer, kernel.w_s_name)
    scale = scales.data.t() if scales.output_dim == 0 else scales.data
    zero = torch.zeros_like(scale)
    if config.zero_points:
        points = getattr(layer, kernel.w_zp_name)
        stored = points.data.t() if points.output_dim == 0 else points.data
        offset = unpack_quantized_values_into_int32(stored.contiguous(), config.weight_type, 1)
        zero = (8 - offset).to(scale.dtype) * scale
    if kernel.w_zp_name is not None:
        setattr(layer, kernel.w_zp_name, None)

    group = values.size(0) // scale.size(0)
    layer.int4_group = group
    if group in KERNEL_GROUPS and values.size(1) % KERNEL_ROWS == 0:
        layer.int4_scales = torch.stack([scale, zero], dim=-1).to(config.act_type).contiguous()
        weight.data = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values.t().contiguous().int(), 1)
    else:
        wide_scale, wide_zero = (part.float().repeat_interleave(group, dim=0) for part in (scale, zero))
        dense = (values.float() - 8) * wide_scale + wide_zero
        layer.int4_scales = None
        weight.data = dense.t().contiguous().to(config.act_type)
    # The packed scales replace these; an empty tensor keeps the attribute that vLLM looks for.
    scales.data = scales.data.new_empty(0)


def apply_weights(kernel: Any, layer: Any, x: Any, bias: Any = None) -> Any:
    """Multiply by one layer's weights."""
    import torch

    weight = getattr(layer, kernel.w_q_name)
    if layer.int4_scales is None:
        return torch.nn.functional.linear(x, weight, bias)
    flat = x.reshape(-1, x.shape[-1]).contiguous()
    product = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, weight, layer.int4_group, layer.int4_scales)
    product = product.reshape(*x.shape[:-1], product.shape[-1])
    return product if bias is None else product + bias
