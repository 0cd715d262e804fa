"""Case 24: whichever worker answers tells of all of them, and two proxies on one machine keep apart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


WINDOWS = """
import sys
import time
from pathlib import Path
from router.config.runtime import Runtime, RuntimeVariant
from router.decision import Decision
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.proxy.usage import Usage
from router.state import Fleet
from router.telemetry import Metrics

spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=("http://127.0.0.1:9",), served_model="m")
fleet = Fleet(Runtime(variants=(spec,)), {}, {"int8": 0.2})
group = fleet.groups["g"]
variant = group.variants["int8"]
metrics = Metrics(Path(sys.argv[1]))
now = float(sys.argv[3])
time.monotonic = lambda: now
for i in range(int(sys.argv[2])):
    metrics.finished(
        Outcome(str(i), CHAT, began=now - 1, ended=now, status=200, group=group, variant=variant, usage=Usage(5, 30),
                replica=variant.replicas[0], decision=Decision("int8", "within_limits", 0.0, 1.0, "batch", "v1", ()))
    )
variant.replicas[0].inflight = int(sys.argv[2])
variant.replicas[0].ready = True
metrics.update_gauges(fleet)
print({w.window: round(w.rate.completion_tokens * {"10s": 10, "1m": 60, "5m": 300}[w.window]) for w in metrics.windows()})
print(metrics.expose().decode())
"""


def windows(folder: Path, requests: int, now: float) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, str(folder), str(requests), str(now)],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, _, rest = done.stdout.partition("\n")
    return first, rest


def test_case_24_sliding_windows_of_several_workers_add_up(tmp_path: Path) -> None:
    now = time.monotonic()
    assert windows(tmp_path, 2, now)[0] == "{'10s': 60, '1m': 60, '5m': 60}"
    first, text = windows(tmp_path, 3, now)
    assert first == "{'10s': 150, '1m': 150, '5m': 150}"
    place = 'group="g",replica="0",scenario="batch",variant="int8"'
    assert f'bitgear_window_completion_tokens_per_second{{{place},window="10s"}} 15.0' in text.replace(
        'group="g",variant="int8",replica="0",scenario="batch"', place
    )
    assert 'bitgear_replica_inflight{group="g",replica="0",variant="int8"} 5.0' in text
    assert 'bitgear_threshold{group="g",precision="int8"} 0.2' in text
    assert "pid=" not in text
