"""A world in virtual time: simulated replicas, planted truth, and the router's real decisions. Begin with `world.py`."""
