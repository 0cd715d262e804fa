"""Live state of the replicas: readiness, load, speed."""

from router.state.fleet import Fleet, Group, Variant
from router.state.monitor import Monitor
from router.state.replica import Replica

__all__ = ["Fleet", "Group", "Monitor", "Replica", "Variant"]
