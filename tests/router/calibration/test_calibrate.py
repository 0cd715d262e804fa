"""`bitgear calibrate` against simulated variants."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("sklearn")

from backends.settings import SimulatorSettings
from backends.simulator.serving import simulated
from classifier.data import chat
from classifier.scoring import load
from router.calibration.collect import collect
from router.calibration.journal import Journal
from router.calibration.prompts import read_prompts
from router.calibration.run import labelled
from router.calibration.sending import SendError, Target
from router.calibration.targets import TargetError, from_admin, from_urls, split
from router.cli.main import app
from tests.support.script import Exchange, Script, Send
from tests.support.upstream import ScriptedUpstream
from tests.support.wire import ChatWire, json_response

COMMAND = (sys.executable, "-c", "import sys; from router.cli.main import app; sys.argv[0] = 'bitgear'; app()")


@pytest.fixture
async def urls() -> AsyncIterator[dict[str, str]]:
    """Three simulated variants of the group `g`, by precision."""
    fast = SimulatorSettings.model_validate({"slowdown": 0.001})
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(simulated(fast, model="g", precision=name))  # type: ignore[arg-type]
            for name in ("fp16", "int8", "int4")
        }


def _arguments(urls: dict[str, str], prompts: Path, out: Path, *more: str) -> list[str]:
    given = [text for name, url in urls.items() for text in ("--url", f"{name}={url}")]
    return [
        *COMMAND,
        "calibrate",
        "g",
        "--prompts",
        str(prompts),
        "--out",
        str(out),
        "--max-tokens",
        "6",
        *given,
        *more,
    ]


def prefers_long(exchange: Exchange) -> Script:
    question = json.loads(exchange.body)["messages"][0]["content"]
    a, b = (question.split(f"Answer {name}:\n")[1].split("\n")[0] for name in "AB")
    return [
        Send(json_response(ChatWire("judge").answer("A" if len(a) > len(b) else "B" if len(b) > len(a) else "TIE")))
    ]


def _journal(out: Path) -> list[str]:
    return out.with_suffix(".journal.jsonl").read_text(encoding="utf-8").splitlines()


async def _here(arguments: list[str]) -> tuple[int, str]:
    """As `_run`, in this process, which has loaded already what takes long to load."""
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments[len(COMMAND) :])
    return done.exit_code, done.output


async def _run(arguments: list[str], limit_s: float = 60) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(limit_s):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.soak
async def test_a_judges_verdicts_become_an_artefact(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command with the real litellm: a judge that finds the longer answer better."""
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("needs the extra hosted")
    out = tmp_path / "own.json"
    async with ScriptedUpstream("judge") as server:
        server.choose = prefers_long
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        given = ("--label", "judge", "--judge", "openai/judge", "--kind", "linear")
        code, output = await _run(_arguments(urls, prompts_file(72), out, *given), 240)
        assert code == 0, output
        asked = len(server.exchanges)
    figures = load(artefact=out).artefact.content["figures"]["labels"]["judge"]
    assert figures["int4"]["prompts"] == figures["int8"]["prompts"] == 72
    assert asked > 0
    assert asked % 2 == 0
    verdicts = [row["lost"] for row in map(json.loads, _journal(out)) if row.get("role") == "judge"]
    assert len(verdicts) == asked // 2
    assert set(verdicts) <= {-1.0, 0.0, 1.0}


async def test_prompts_become_an_artefact(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path
) -> None:
    out = tmp_path / "own.json"
    code, output = await _here(_arguments(urls, prompts_file(72), out, "--label", "agreement"))
    assert code == 0, output
    assert "## Share of traffic" in output
    classifier = load(artefact=out)
    assert classifier.artefact.name == "g"
    assert 0 <= classifier.risk(chat("Explain it")).by_precision["int4"] <= 1
    data = classifier.artefact.content["data"]
    assert [v["precision"] for v in data["variants"]] == ["fp16", "int8", "int4"]
    assert classifier.artefact.content["figures"]["labels"]["divergence"]["int4"]["prompts"] >= 60
    assert classifier.artefact.content["figures"]["labels"]["task"]["int8"]["prompts"] == 24
    assert "Classifier artefact `g`" in out.with_suffix(".md").read_text()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
async def test_a_run_that_was_ended_goes_on_where_it_was(
    prompts_file: Callable[[int], Path], tmp_path: Path, sent: signal.Signals
) -> None:
    slow = SimulatorSettings.model_validate({"slowdown": 1.0})
    prompts, out = prompts_file(60), tmp_path / "own.json"
    journal = tmp_path / "own.journal.jsonl"
    async with AsyncExitStack() as stack:
        urls = {
            name: await stack.enter_async_context(simulated(slow, model="g", precision=name))  # type: ignore[arg-type]
            for name in ("fp16", "int4")
        }
        arguments = _arguments(urls, prompts, out, "--concurrency", "1", "--collect-only")
        process = await asyncio.create_subprocess_exec(
            *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            while not journal.exists() or journal.read_bytes().count(b"\n") < 5:
                await asyncio.sleep(0.01)
        process.send_signal(sent)
        output, _ = await process.communicate()
        assert process.returncode != 0
        before = [line for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
        assert 5 <= len(before) < 120
        if sent == signal.SIGINT:
            assert "goes on where this one was" in output.decode()
            assert process.returncode == 130
        code, told = await _run([*arguments[:-3], "--concurrency", "8", "--collect-only"])
        assert code == 0, told
    lines = journal.read_text().splitlines(keepends=True)
    assert lines[: len(before)] == before
    assert len(lines) == len({json.loads(line)["key"] for line in lines}) == 120


def _targets(urls: dict[str, str]) -> tuple[Target, list[Target]]:
    return split(from_urls([f"{name}={url}" for name, url in urls.items()], "g"))


async def test_what_is_there_is_not_asked_again(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path
) -> None:
    prompts = read_prompts(prompts_file(9))
    full, others = _targets(urls)
    seen: list[tuple[str, int]] = []
    with Journal(tmp_path / "j") as journal:
        options = {"max_tokens": 4, "concurrency": 3, "timeout_s": 30.0}
        await collect(prompts, full, others, journal, progress=lambda v, d, _: seen.append((v, d)), **options)  # type: ignore[arg-type]
        size = (tmp_path / "j").stat().st_size
        assert len(journal) == 27
        assert sorted(seen) == sorted((name, n) for name in urls for n in range(1, 10))
        # Nobody listens there: whatever was asked again would fail.
        gone = [Target(t.variant, t.precision, ("http://127.0.0.1:9",), t.model) for t in (full, *others)]
        await collect(prompts, gone[0], gone[1:], journal, progress=lambda *_: None, **options)  # type: ignore[arg-type]
        assert (tmp_path / "j").stat().st_size == size
        rows = list(labelled(prompts, full, others, journal, 4, {}, {}))
        assert [set(row.losses) for row in rows] == [{"int8", "int4"}] * 9
        assert all({"divergence", "agreement"} <= set(row.losses["int4"]) for row in rows)


async def test_a_judge_and_users_are_joined_by_prompt_and_variant(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path
) -> None:
    prompts = read_prompts(prompts_file(2))
    full, others = _targets(urls)
    with Journal(tmp_path / "j") as journal:
        await collect(
            prompts, full, others, journal, max_tokens=4, concurrency=2, timeout_s=30, progress=lambda *_: None
        )
        told = {(prompts[1].key, "int4"): 0.5}
        rows = list(labelled(prompts, full, others, journal, 4, {}, told))
    assert "feedback" not in rows[0].losses["int4"]
    assert "feedback" not in rows[1].losses["int8"]
    assert rows[1].losses["int4"]["feedback"].loss == 0.5


async def test_a_variant_that_is_away_ends_the_run_with_its_name(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.calibration.sending._WAIT_S", 0.001)
    prompts = read_prompts(prompts_file(3))
    full, _ = _targets(urls)
    away = Target("int4", "int4", ("http://127.0.0.1:9",), "g")
    with Journal(tmp_path / "j") as journal, pytest.raises(SendError, match=r"int4: http://127.0.0.1:9.*5 tries"):
        await collect(
            prompts, full, [away], journal, max_tokens=4, concurrency=2, timeout_s=5, progress=lambda *_: None
        )


async def test_a_request_that_is_refused_does_not_end_the_run(
    urls: dict[str, str], prompts_file: Callable[[int], Path], tmp_path: Path
) -> None:
    prompts = read_prompts(prompts_file(3))
    full, others = _targets(urls)
    unknown = Target("int4", "int4", (urls["int4"],), "another-model")
    with Journal(tmp_path / "j") as journal:
        await collect(
            prompts,
            full,
            [others[0], unknown],
            journal,
            max_tokens=4,
            concurrency=2,
            timeout_s=30,
            progress=lambda *_: None,
        )
        rows = list(labelled(prompts, full, [others[0], unknown], journal, 4, {}, {}))
    assert [set(row.losses) for row in rows] == [{"int8"}] * 3


async def test_mistakes_are_told_before_anything_is_sent(prompts_file: Callable[[int], Path], tmp_path: Path) -> None:
    prompts, out = prompts_file(3), tmp_path / "x.json"
    code, output = await _here(_arguments({"fp16": "http://127.0.0.1:9"}, prompts, out))
    assert (code, "no variant of a lower precision" in output) == (2, True)
    code, output = await _here(_arguments({"best": "http://127.0.0.1:9"}, prompts, out))
    assert (code, "expected VARIANT=URL" in output) == (2, True)
    prompts.write_text('{"prompt": 3}\n')
    code, output = await _here(_arguments({"fp16": "http://127.0.0.1:9", "int4": "http://127.0.0.1:9"}, prompts, out))
    assert code == 2
    assert "prompts.jsonl:1: prompt" in output
    assert not out.with_suffix(".journal.jsonl").exists()


def test_targets_of_a_running_proxy() -> None:
    def row(variant: str, precision: str, *, kind: str = "vllm", ready: bool = True) -> dict[str, object]:
        replicas = [{"url": "http://a", "ready": ready}]
        named: dict[str, object] = {"group": "g", "variant": variant, "precision": precision, "kind": kind}
        return {**named, "served_model": "m", "replicas": replicas}

    rows = [row("fp16", "fp16"), row("int4", "int4"), row("cloud", "fp16", kind="litellm")]
    full, others = split(from_admin(rows, "g"))
    assert (full.variant, full.urls, full.model, [t.variant for t in others]) == ("fp16", ("http://a",), "m", ["int4"])
    with pytest.raises(TargetError, match="unknown group 'x'; the proxy has: g"):
        from_admin(rows, "x")
    with pytest.raises(TargetError, match="g@int4: no replica is ready"):
        from_admin([rows[0], row("int4", "int4", ready=False)], "g")


def test_replicas_of_one_variant_are_given_one_by_one() -> None:
    (target,) = from_urls(["fast-int4=http://a/v1/", "fast-int4=http://b"], "g")
    assert (target.variant, target.precision, target.urls) == ("fast-int4", "int4", ("http://a", "http://b"))
