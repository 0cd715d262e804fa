"""What the documents name is there: files, commands with their options, fields of the configuration, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from classifier.cli import build_app
from router.cli.main import app
from router.config.describe import at, schema
from router.config.schema import Config
from router.decision.types import Reason

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").rglob("README.md")])
OTHERS = sorted(
    [*(ROOT / "deploy").rglob("*.y*ml"), ROOT / "deploy" / "Dockerfile", *(ROOT / "config").rglob("*.yaml")]
)
SECTIONS = set(Config.model_fields)
PLACES = ("", "docs", "router", "router/decision", "router/proxy", "router/tuning", "router/cache", "benchmarks")
OF_OTHERS = {"server.address"}
"""An attribute of OpenTelemetry's."""
ALL = {
    path.name for folder in ("router", "classifier", "backends", "benchmarks") for path in (ROOT / folder).rglob("*.py")
}


def code(text: str) -> Iterator[str]:
    """Everything in backticks, and the lines of every block of code."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (.+)$", text, re.MULTILINE)
    yield from (line for block in fenced for line in block.splitlines())
    yield from indented
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(document: Path) -> None:
    text = document.read_text()
    for link in re.findall(r"\]\(([^)#]+?)\)", text):
        if "://" not in link:
            assert (document.parent / link).exists(), link
    for piece in code(text):
        for name in re.findall(r"(?<![\w./~-])((?:[\w-]+/)*[\w-]+\.(?:py|md|yml|json|svg|c))\b", piece):
            bare = "/" not in name
            if (bare and not name.endswith(".py")) or name.startswith(("out/", "my-")):
                continue
            found = name in ALL if bare else any((ROOT / place / name).exists() for place in (*PLACES, document.parent))
            assert found, f"{name} in {piece!r}"


def commands() -> dict[str, Any]:
    """Click's commands by their full name."""
    found: dict[str, Any] = {}

    def walk(name: str, command: Any) -> None:
        found[name] = command
        for part, below in getattr(command, "commands", {}).items():
            walk(f"{name} {part}".strip(), below)

    walk("", typer.main.get_command(app))
    walk("classifier", typer.main.get_command(build_app()))
    return found


COMMANDS = commands()


def wrong(line: str) -> str | None:
    """What is wrong with a line that calls `bitgear`; None where nothing is."""
    words = re.sub(r"\[|\]|…|\.\.\.", " ", line.partition(" #")[0]).split()
    name, rest = "", words
    while rest and f"{name} {rest[0]}".strip() in COMMANDS:
        name, rest = f"{name} {rest[0]}".strip(), rest[1:]
    command = COMMANDS[name]
    if getattr(command, "commands", None) and rest and not rest[0].startswith("-") and rest[0] != "ADMIN":
        return f"{name!r} has no command {rest[0]!r}"
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
    return next((f"{name!r} has no {w}" for w in rest if re.fullmatch(r"--?[a-z][a-z-]*", w) and w not in known), None)


@pytest.mark.parametrize("document", [*DOCUMENTS, *OTHERS], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_that_is_named_can_be_given(document: Path) -> None:
    text = document.read_text()
    pieces = code(text) if document.suffix == ".md" else re.findall(r"(?:^#|`)([^`\n]+)", text, re.MULTILINE)
    for piece in pieces:
        for line in re.split(r";|\||&&", piece):
            called = re.search(r"(?:.*[\s/]|^)bitgear ((?:[a-z]|--).*)", line)
            if called:
                assert wrong(called[1]) is None, f"{wrong(called[1])}: {piece!r}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_field_that_is_named_is_one(document: Path) -> None:
    for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+|\.NAME)+)[`:]", document.read_text()):
        first, *rest = name.split(".")
        if first in SECTIONS and name not in OF_OTHERS and not name.endswith((".py", ".md", ".json", ".yaml")):
            assert at((first, *rest)) is not None, name


def test_what_is_wrong_is_found() -> None:
    assert wrong("admin keys make app --tenant t") is None
    assert wrong("admin keys mak app") is not None
    assert wrong("tune g --onse") is not None
    assert at(("server", "prt")) is None
    assert schema()


def test_the_documents_name_enough_to_be_worth_looking_at() -> None:
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    assert len(re.findall(r"bitgear [a-z]+", text)) > 60
    assert len([name for name in re.findall(r"`([a-z_]+)\.[a-z_.]+`", text) if name in SECTIONS]) > 40


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_benchmark_that_is_named_takes_these_options(document: Path) -> None:
    text = document.read_text()
    headings = re.findall(r"^#+ .*`(.*)`$", text, re.MULTILINE)
    for piece in [*code(text), *headings]:
        called = re.match(
            r"(?:python )?(?:-m )?(benchmarks[./][\w./]+|[a-z_]+\.py)((?: .*)?)$", piece.partition(" #")[0].strip()
        )
        if called is None or not (piece.startswith("python ") or " --" in piece):
            continue
        name = called[1] if called[1].endswith(".py") else called[1].replace(".", "/") + ".py"
        source = next((p for p in (ROOT / name, document.parent / name) if p.exists()), None)
        assert source is not None, piece
        for option in re.findall(r"--[a-z][a-z-]*", called[2]):
            assert f'"{option}"' in source.read_text(), f"{option} in {piece!r}"


def test_every_reason_and_every_code_of_an_error_is_explained() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    reasons = text.partition("| reason |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", "\n".join(re.findall(r"^\| ([^|]+)\|", reasons, re.MULTILINE)))) == set(
        get_args(Reason)
    )
    table = text.partition("| status | code |")[2].partition("\n\n")[0]
    told = {name for name in re.findall(r"`([a-z_]+)`", table) if name not in SECTIONS}
    sources = "\n".join(
        path.read_text() for folder in ("proxy", "keys") for path in (ROOT / "router" / folder).glob("*.py")
    )
    # What `ApiError` and `bad_field` are given last, before a time to wait.
    made = re.compile(r"(?:ApiError|bad_field)\((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*\)")
    used = {
        code
        for call in made.findall(sources)
        for code in re.findall(
            r'"([a-z]+(?:_[a-z]+)+)"(?=,? *[\w.]*\s*\)|, *[\w.]+\s*\)|,\s*\w+\([^()]*\),?\s*\))', call
        )
    }
    assert (
        used - {"request_id", "stream_options"} - told - {"feedback_off", "stream_broken", "invalid_request"} == set()
    )
    assert len(used & told) > 15
    assert all(f'"{code}"' in sources or code.endswith("_timeout") for code in told)
