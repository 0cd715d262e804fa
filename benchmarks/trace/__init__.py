"""Real arrival times and lengths, replayed against simulated variants. Begin with `replay.py`."""
