"""Tens of thousands of mixed requests through one worker: memory flat, nothing left running, no unexplained error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_case_25_memory_is_flat_over_mixed_requests() -> None:
    # Pools and caches are full after some 50,000 requests: the second half is what is judged.
    command = [sys.executable, "benchmarks/soak.py", "--requests", "120000", "--minutes", "9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
