"""Case 24: whichever worker answers tells of all of them, and two proxies on one machine keep apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SERVE = """
import sys
from pathlib import Path
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.telemetry import Metrics

metrics = Metrics(Path(sys.argv[1]))
for i in range(int(sys.argv[2])):
    metrics.finished(Outcome(str(i), CHAT, began=0.0, ended=0.1, status=404, error="x"))
print(metrics.expose().decode())
"""


def worker(folder: Path, requests: int) -> float:
    """A worker that has served so many requests; the total it tells."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(folder), str(requests)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("bitgear_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_case_24_each_worker_tells_of_all_and_of_no_other_proxy(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert worker(one, 3) == 3
    assert worker(other, 10) == 10
    assert worker(one, 4) == 7
    assert worker(one, 0) == 7
    assert worker(other, 0) == 10
