"""Tokens per second by batch size and precision: where INT4 and INT8 cross."""

from __future__ import annotations

from backends.settings import Precision, SimulatorSettings
from backends.simulator.roofline import Roofline

PRECISIONS: tuple[Precision, ...] = ("fp16", "fp8", "int8", "int4")
_LARGEST = 4096


def crossing(settings: SimulatorSettings, first: Precision, second: Precision, context: int) -> int | None:
    """The smallest batch, up to 4096, at which `second` decodes at least as fast as `first`; None if there is none.

    At batches where both are the same fast from the start (equal rooflines) it is 1.
    """
    one, other = Roofline.of(settings, first), Roofline.of(settings, second)
    for batch in range(1, _LARGEST + 1):
        if other.decode_tokens_per_s(batch, context) >= one.decode_tokens_per_s(batch, context):
            return batch
    return None


def table(settings: SimulatorSettings, context: int) -> str:
    """For people: one line per batch size, one column per precision, tokens/s while all sequences decode."""
    lines = [
        f"decode tokens/s, {settings.parameters_b:g}B parameters, {context} tokens cached per sequence, "
        f"{settings.bandwidth_gb_s:g} GB/s, {settings.peak_tflops:g} TFLOP/s at FP16",
        "batch" + "".join(f"{precision:>10}" for precision in PRECISIONS) + "   fastest",
    ]
    rooflines = {precision: Roofline.of(settings, precision) for precision in PRECISIONS}
    batch = 1
    while batch <= 1024:
        speeds = {name: roofline.decode_tokens_per_s(batch, context) for name, roofline in rooflines.items()}
        fastest = ", ".join(name for name, speed in speeds.items() if speed >= max(speeds.values()) * 0.9999)
        lines.append(f"{batch:5d}" + "".join(f"{speeds[name]:10.0f}" for name in PRECISIONS) + f"   {fastest}")
        batch *= 2
    batch_of_crossing = crossing(settings, "int4", "int8", context)
    if batch_of_crossing is None:
        lines.append(f"INT4 is faster than INT8 at every batch up to {_LARGEST}.")
    else:
        lines.append(f"INT8 overtakes INT4 at batch {batch_of_crossing}.")
    return "\n".join(lines) + "\n"


__all__ = ["PRECISIONS", "crossing", "table"]
