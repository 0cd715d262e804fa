"""Case 24: whichever worker answers tells of all of them, and two proxies on one machine keep apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# The workers of a test come one after the other, each a process of its own; what they import is imported once for all.
ONE_BY_ONE = """
for folder, requests in json.loads(sys.argv[1]):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        worker(folder, requests)
        print("END OF ONE", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def ran(code: str, jobs: list[tuple[Path, int]]) -> list[str]:
    """What each worker tells after it has served so many requests."""
    done = subprocess.run(
        [sys.executable, "-c", code + ONE_BY_ONE, json.dumps([(str(folder), requests) for folder, requests in jobs])],
        # Whether there are several workers is read when prometheus-client is imported.
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(jobs[0][0])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    *told, rest = done.stdout.split("END OF ONE\n")
    assert (len(told), rest) == (len(jobs), "")
    return told


SERVE = """
import json
import os
import sys
from pathlib import Path
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.telemetry import Metrics

def worker(folder, requests):
    metrics = Metrics(Path(folder))
    for i in range(requests):
        metrics.finished(Outcome(str(i), CHAT, began=0.0, ended=0.1, status=404, error="x"))
    print(metrics.expose().decode())
"""


def total(text: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith("bitgear_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_case_24_each_worker_tells_of_all_and_of_no_other_proxy(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    told = ran(SERVE, [(one, 3), (other, 10), (one, 4), (one, 0), (other, 0)])
    assert [total(text) for text in told] == [3, 10, 7, 7, 10]


WINDOWS = """
import json
import os
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

def worker(folder, requests):
    spec = RuntimeVariant(group="g", variant="int8", precision="int8", urls=("http://127.0.0.1:9",), served_model="m")
    fleet = Fleet(Runtime(variants=(spec,)), {}, {"int8": 0.2})
    group = fleet.groups["g"]
    variant = group.variants["int8"]
    metrics = Metrics(Path(folder))
    now = time.monotonic()
    for i in range(requests):
        metrics.finished(
            Outcome(str(i), CHAT, began=now - 1, ended=now, status=200, group=group, variant=variant, usage=Usage(5, 30),
                    replica=variant.replicas[0], decision=Decision("int8", "within_limits", 0.0, 1.0, "batch", "v1", ()))
        )
    variant.replicas[0].inflight = requests
    variant.replicas[0].ready = True
    metrics.update_gauges(fleet)
    seconds = {"10s": 10, "1m": 60, "5m": 300}
    print({w.window: round(w.rate.completion_tokens * seconds[w.window]) for w in metrics.windows()})
    print(metrics.expose().decode())
"""


def test_case_24_sliding_windows_of_several_workers_add_up(tmp_path: Path) -> None:
    told = ran(WINDOWS, [(tmp_path, 2), (tmp_path, 3)])
    assert told[0].partition("\n")[0] == "{'10s': 60, '1m': 60, '5m': 60}"
    first, _, text = told[1].partition("\n")
    assert first == "{'10s': 150, '1m': 150, '5m': 150}"
    place = 'group="g",replica="0",scenario="batch",variant="int8"'
    assert f'bitgear_window_completion_tokens_per_second{{{place},window="10s"}} 15.0' in text.replace(
        'group="g",variant="int8",replica="0",scenario="batch"', place
    )
    assert 'bitgear_replica_inflight{group="g",replica="0",variant="int8"} 5.0' in text
    assert 'bitgear_threshold{group="g",precision="int8"} 0.2' in text
    assert "pid=" not in text
