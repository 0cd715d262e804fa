"""`bitgear up` as people run it: real processes, a real port, signals; nothing is left behind."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis
from typer.testing import CliRunner

from router.cli.main import app
from tests.router.cli.processes import Running, alive, until

Start = Callable[..., Running]
SIMULATE = ("up", "--simulate", "--port", "0", "--admin-port", "0")
TWO = """\
groups:
  one:
    backends:
    - {precision: fp16, kind: simulator, simulator: {time_scale: 0.05}}
    - {precision: int4, kind: simulator, simulator: {time_scale: 0.05}}
"""
THREE = (
    TWO
    + """\
    - {precision: int8, urls: [http://127.0.0.1:9/v1]}
"""
)


def api_of(text: str) -> str:
    return text.split("Bitgear serves")[1].split("/v1")[0].strip()


def admin_of(text: str) -> str:
    return text.split("Admin")[1].split()[0]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One running `bitgear up` with two simulated variants and one whose server is not there."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "three.yaml").write_text(THREE)
    one = Running(folder, "up", "--config", str(folder / "three.yaml"), "--port", "0", "--admin-port", "0")
    one.until_says("Ctrl-C ends it.")
    yield one
    assert one.ended(signal.SIGTERM) == 0


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "two.yaml"
    path.write_text(TWO)
    return str(path)


def test_dry_run_prints_commands_and_starts_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--simulate", "--dry-run", "--precisions", "fp16,int4"])
    assert result.exit_code == 0, result.output
    assert "-m backends.simulator" in result.output
    assert "smollm2-135m@int4" in result.output
    assert "int8" not in result.output
    assert not (tmp_path / "home").exists()


def test_a_model_beside_groups_is_refused(file: str) -> None:
    result = CliRunner().invoke(app, ["up", "--model", "x", "--config", file, "--dry-run"])
    assert result.exit_code == 2
    assert "has groups (one)" in result.output


def test_a_wrong_precision_is_refused() -> None:
    result = CliRunner().invoke(app, ["up", "--precisions", "int3", "--dry-run"])
    assert result.exit_code == 2
    assert "--precisions" in result.output


def test_a_wrong_configuration_is_told_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("server:\n  prot: 1\n")
    result = CliRunner().invoke(app, ["up", "--config", str(path)])
    assert result.exit_code == 2
    assert "wrong.yaml:2: server.prot" in result.output


@pytest.mark.parametrize(("flag", "setting"), [("--port", "server.port"), ("--admin-port", "admin.port")])
def test_a_port_in_use_is_told_before_anything_is_started(bitgear: Start, flag: str, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--port": "0", "--admin-port": "0", flag: str(port)}
        one = bitgear("up", "--simulate", *(word for pair in ports.items() for word in pair))
        assert one.ended(None) == 2
    assert f"port {port} is in use" in one.text()
    assert setting in one.text()
    assert "Traceback" not in one.text()
    assert not (one.out.parent / "home").exists()


def test_the_printed_curl_works_and_ctrl_c_ends_all(bitgear: Start) -> None:
    one = bitgear(*SIMULATE, "--precisions", "fp16,int4")
    text = one.until_says("Ctrl-C ends it.")
    assert "SIMULATED" in text
    command = text.split("Try:\n")[1].splitlines()[0].strip()
    answer = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(answer)["choices"][0]["message"]["content"]
    family = one.family()
    assert len(family) >= 6, "a worker, Valkey, two guards with two servers"
    assert one.ended(signal.SIGINT) == 0
    assert alive(family) == []
    assert list((one.out.parent / "home" / "run").iterdir()) == []
    assert "Traceback" not in one.text()


def test_a_worker_that_cannot_start_ends_all_with_its_reason(bitgear: Start) -> None:
    one = bitgear(*SIMULATE, "--precisions", "fp16,int4", env={"BITGEAR_CLASSIFIER__MODEL": "nonsense"})
    assert one.ended(None) == 1
    assert "nonsense" in one.text()
    assert "Traceback" not in one.text()


def test_the_proxy_answers_503_for_a_variant_that_is_not_ready(shared: Running) -> None:
    body = {"model": "one@int8", "messages": [{"role": "user", "content": "hi"}]}
    answer = httpx.post(f"{api_of(shared.text())}/v1/chat/completions", json=body, trust_env=False, timeout=60)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1


def test_a_killed_worker_server_and_valkey_come_back_and_a_killed_parent_leaves_no_orphan(
    bitgear: Start, file: str
) -> None:
    one = bitgear("up", "--config", file, "--port", "0", "--admin-port", "0")
    text = one.until_says("Ctrl-C ends it.")
    api = api_of(text)

    def find(words: str) -> list[psutil.Process]:
        found = []
        for process in one.family():
            try:
                if words in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def answers() -> bool:
        body = {"model": "one", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        try:
            return httpx.post(f"{api}/v1/chat/completions", json=body, trust_env=False, timeout=30).status_code == 200
        except httpx.HTTPError:
            return False

    for words in ("router.worker", "valkey-server", "-m backends.simulator --port"):
        victim = find(words)[-1]
        victim.kill()
        until(lambda words=words, victim=victim: any(p.pid != victim.pid for p in find(words)))
        until(answers)
    # And when the parent is killed, all of them end.
    family = one.family()
    assert family
    one.ended(signal.SIGKILL)
    until(lambda: alive(family) == [])


def test_a_second_ctrl_c_does_not_wait_for_requests(bitgear: Start, tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(
        "server: {drain_s: 300}\n"
        "groups: {one: {backends: [{precision: int4, kind: simulator, simulator: {slowdown: 10}}]}}"
    )
    one = bitgear("up", "--config", str(path), "--port", "0", "--admin-port", "0")
    api = api_of(one.until_says("Ctrl-C ends it."))
    body = {"model": "one", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000, "stream": True,
            "ignore_eos": True}  # fmt: skip
    with httpx.stream("POST", f"{api}/v1/chat/completions", json=body, timeout=60, trust_env=False) as response:
        assert next(response.iter_lines())
        one.process.send_signal(signal.SIGINT)
        one.until_says("running requests may finish")
        assert one.ended(signal.SIGINT) == 0


def test_two_workers_share_the_port_and_their_metrics_and_sigterm_lets_running_requests_finish(
    bitgear: Start, tmp_path: Path
) -> None:
    path = tmp_path / "slow.yaml"
    slow = "{slowdown: 4, mean_output_tokens: 500}"
    path.write_text(f"{TWO}  slow: {{backends: [{{precision: int4, kind: simulator, simulator: {slow}}}]}}\n")
    one = bitgear("up", "--config", str(path), "--port", "0", "--admin-port", "0", env={"BITGEAR_SERVER__WORKERS": "2"})
    text = one.until_says("Ctrl-C ends it.")
    body = {"model": "one", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    for _ in range(20):
        answer = httpx.post(f"{api_of(text)}/v1/chat/completions", json=body, trust_env=False, timeout=30)
        assert answer.status_code == 200, answer.text

    def counted() -> list[float]:
        # Every connection may be another worker's: all of them tell the same.
        texts = [httpx.get(f"{admin_of(text)}/metrics", trust_env=False, timeout=60).text for _ in range(6)]
        return [
            sum(float(line.split()[-1]) for line in t.splitlines() if line.startswith("bitgear_requests_total"))
            for t in texts
        ]

    until(lambda: counted() == [20.0] * 6)
    body = {"model": "slow", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "stream": True,
            "ignore_eos": True}  # fmt: skip
    api = api_of(text)
    with httpx.stream("POST", f"{api}/v1/chat/completions", json=body, timeout=60, trust_env=False) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data:")
        one.process.send_signal(signal.SIGTERM)
        assert list(lines)[-2:].count("data: [DONE]") == 1
    assert one.ended(None) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{api}/v1/models", trust_env=False)


def test_events_of_requests_arrive_in_the_private_valkey(shared: Running) -> None:
    (runtime,) = (shared.out.parent / "home" / "run").glob("*/runtime.json")
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o600
    url = json.loads(runtime.read_bytes())["redis_url"]
    body = {"model": "one", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    with Redis.from_url(url) as client:
        answer = httpx.post(f"{api_of(shared.text())}/v1/chat/completions", json=body, trust_env=False, timeout=60)
        assert answer.status_code == 200
        # Others' events may still be on their way.
        name = answer.headers["x-request-id"]
        until(lambda: name in [json.loads(f[b"event"])["id"] for _, f in client.xrange("bitgear:events")])


def test_status_of_a_running_proxy(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_of(shared.text())
    # Its own token lies below its home.
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(shared.out.parent / "home"))
    status = CliRunner().invoke(app, ["status", "--url", admin])
    assert status.exit_code == 0, status.output
    assert "one@int4" in status.output
    assert "1/1" in status.output
    assert "0/1" in status.output
    assert len(json.loads(CliRunner().invoke(app, ["status", "--url", admin, "--json"]).stdout)) == 3


@pytest.mark.parametrize("arguments", [[], ["--scenario", "batch"], ["--model", "one@fp16"]])
def test_route_of_a_running_proxy(shared: Running, arguments: list[str]) -> None:
    route = CliRunner().invoke(app, ["route", "hello", "--url", api_of(shared.text()), *arguments])
    assert route.exit_code == 0, route.output
    assert "reason:" in route.output
    assert "one" in route.output or "fp16" in route.output


def test_route_as_json_and_with_an_unknown_model(shared: Running) -> None:
    api = api_of(shared.text())
    found = json.loads(CliRunner().invoke(app, ["route", "hello", "--url", api, "--json"]).stdout)
    assert found["decision"]["variant"] in ("fp16", "int4")
    wrong = CliRunner().invoke(app, ["route", "hello", "--url", api, "--model", "none"])
    assert wrong.exit_code == 1
    assert "none" in wrong.output


def test_status_without_a_proxy_says_so() -> None:
    result = CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "bitgear up" in result.output
