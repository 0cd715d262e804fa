from __future__ import annotations

from backends.settings import SimulatorSettings
from backends.simulator.predict import crossing, table


def test_int8_overtakes_int4_where_arithmetic_begins_to_bind_int4() -> None:
    # 2 x parameters x batch / FP16 peak = parameters x 1 byte / bandwidth: batch = 989e12 / (2 x 3.35e12)
    assert crossing(SimulatorSettings(), "int4", "int8", 512) == 148


def test_without_arithmetic_to_bind_they_never_cross() -> None:
    assert crossing(SimulatorSettings(peak_tflops=1e6), "int4", "int8", 512) is None


def test_the_table_says_who_is_fastest_and_where_they_cross() -> None:
    lines = table(SimulatorSettings(), 512).splitlines()
    assert lines[2].split()[0] == "1"
    assert lines[2].endswith("int4")
    assert lines[-1] == "INT8 overtakes INT4 at batch 148."
    assert "every batch" in table(SimulatorSettings(peak_tflops=1e6), 512)
