"""Balancers by name: the choice among a variant's replicas. A new one is a file with `pick` and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.state.balancers import least_loaded, power_of_two, round_robin

Balancer = Callable[[Sequence[float], int], int]
"""(load per replica, a running number) -> index. Loads are requests running and waiting."""

BALANCERS: dict[str, Balancer] = {
    "least_loaded": least_loaded.pick,
    "power_of_two": power_of_two.pick,
    "round_robin": round_robin.pick,
}
