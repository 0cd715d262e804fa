"""The whole loop once on real vLLM variants on CPU: traffic, feedback, `bitgear tune`, a published and explained version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.own_home import own_home
from tests.e2e.test_real_vllm import free_port

pytestmark = pytest.mark.vllm
BITGEAR = str(Path(sys.executable).parent / "bitgear")
START_S = 900
CONFIG = """\
local: {model: tiny, precisions: [fp16, int4]}
thresholds: {int4: 1.0}
scenarios: {realtime: {ttft_ms: 60000, e2e_ms: null, prefer: lowest_precision}}
cache: {enabled: false}
exploration: {share: 0}
shadow: {share: 0}
redis: {timeout_s: 10}
tuning:
  mode: automatic
  min_records: 40
  min_labels: 20
  cooldown_s: 0
  max_weight_per_key: 1
"""


def test_feedback_on_real_answers_becomes_a_version_that_says_why(tmp_path: Path) -> None:
    port, admin_port = free_port(), free_port()
    file, log = tmp_path / "loop.yaml", tmp_path / "up.log"
    file.write_text(CONFIG)
    environment = {**os.environ, **own_home(tmp_path)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [BITGEAR, "up", "--config", str(file), "--port", str(port), "--admin-port", str(admin_port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        end = time.monotonic() + START_S
        while "Ctrl-C ends it." not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(1)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
            model = client.get("/v1/models").json()["data"][0]["id"].partition("@")[0]
            served = [judge(client, model, i) for i in range(60)]
            assert {served[0], served[1]} == {"int4", "fp16"}
            folder = tmp_path / "report"
            command = [BITGEAR, "tune", model, "--once", "--folder", str(folder)]
            command += ["--url", f"http://127.0.0.1:{admin_port}", "--config", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
            assert done.returncode == 0, done.stderr + log.read_text()[-3000:]
            report = Path(done.stdout.strip()).read_text()
            assert "status **published**" in report, report
            assert "against full precision" in report
            assert "## Candidates" in report
            assert (folder / (Path(done.stdout.strip()).stem + ".svg")).read_text().startswith("<svg")
            end = time.monotonic() + 10
            while judge(client, model, 0) != "fp16":
                assert time.monotonic() < end
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def judge(client: httpx.Client, model: str, number: int) -> str:
    """Ask, say what the answer is worth, and return who answered: full precision's pleases, INT4's does not."""
    key = {"authorization": f"Bearer sk-{number % 6}"}
    body = {"model": model, "messages": [{"role": "user", "content": f"Say {number}."}], "max_tokens": 8}
    full = {"x-bitgear-max-risk": "0"} if number % 2 else {}
    answer = client.post("/v1/chat/completions", json=body, headers={**key, **full})
    assert answer.status_code == 200, answer.text
    decision = dict(part.strip().partition("=")[::2] for part in answer.headers["x-bitgear-decision"].split(";"))
    told = {"request_id": answer.headers["x-request-id"], "score": 0.9 if decision["variant"] == "fp16" else 0.1}
    assert client.post("/v1/feedback", json=told, headers=key).status_code == 200
    return str(decision["variant"])
