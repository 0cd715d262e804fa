"""A simulated vLLM server: vLLM's wire format and metrics, times from a roofline, failures on demand."""

from backends.simulator.app import Simulator
from backends.simulator.engine import Engine, Sequence
from backends.simulator.faults import Fault
from backends.simulator.roofline import Roofline
from backends.simulator.serving import Running, serving, simulated

__all__ = ["Engine", "Fault", "Roofline", "Running", "Sequence", "Simulator", "serving", "simulated"]
