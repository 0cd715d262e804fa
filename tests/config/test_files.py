"""The shipped files: default.yaml is what the generator gives, the examples load, the numbers in comments are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import classifier
from router.config.describe import at, schema
from router.config.load import load
from router.config.schema import Config
from router.config.show import commented
from router.config.yamlfile import parse

CONFIG = Path(__file__).parents[2] / "config"
EXAMPLES = sorted((CONFIG / "examples").glob("*.yaml"))


def test_default_yaml_is_the_generators_output() -> None:
    assert (CONFIG / "default.yaml").read_text() == commented(Config()), "run: make config"


def test_default_yaml_is_the_defaults() -> None:
    assert load(CONFIG / "default.yaml", {}) == Config()


def test_default_yaml_has_every_field_of_the_schema() -> None:
    text = (CONFIG / "default.yaml").read_text()
    names = {n for d in [schema(), *schema()["$defs"].values()] for n in d.get("properties", {})}
    assert names
    assert [n for n in names if not re.search(rf"^#{{0,2}}\s*(- )?{n}:", text, re.MULTILINE)] == []


def test_every_field_has_a_sentence() -> None:
    for definition in [schema(), *schema()["$defs"].values()]:
        for name, field in definition.get("properties", {}).items():
            assert re.search(r"\w.*[.)]$", field.get("description", "")), name


def test_the_commented_group_works_without_its_first_hash(tmp_path: Path) -> None:
    text = (CONFIG / "default.yaml").read_text()
    group = text.split("#groups:\n")[1]
    path = tmp_path / "group.yaml"
    path.write_text("\n".join(line[1:] for line in ("#groups:\n" + group).splitlines()))
    config = load(path, {})
    assert list(config.groups) == ["my-model"]
    assert config == Config.model_validate(
        {"groups": {"my-model": {"backends": [{"precision": "fp16", "urls": ["http://127.0.0.1:8000"]}]}}}
    )


def test_five_examples() -> None:
    assert [p.stem for p in EXAMPLES] == [
        "edge",
        "hosted-fallback",
        "one-gpu-three-variants",
        "one-variant-per-gpu",
        "running-servers",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_loads(path: Path) -> None:
    config = load(path, {})
    assert config.groups
    assert path.name in path.read_text(), "the example says how it is started"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_survives_show_and_load(path: Path, tmp_path: Path) -> None:
    config = load(path, {})
    again = tmp_path / "again.yaml"
    again.write_text(commented(config))
    assert load(again, {}) == config


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_defaults_named_in_comments_are_the_schemas(path: Path) -> None:
    # "Default 4096", "default 5000 ms" in a comment speak of the field on the next line.
    text = path.read_text()
    lines = text.splitlines()
    fields = {line: p for p, line in parse(text, str(path)).lines.items()}
    data = Config().model_dump()
    for number, line in enumerate(lines, start=1):
        named = re.search(r"#.*\b[Dd]efault (\d[\d.]*\d|\d)", line)
        if not named:
            continue
        value: object = data
        for part in fields[number + 1]:
            assert isinstance(value, dict)
            value = value[part]
        assert float(named[1]) == value, line


def test_at_knows_every_path_of_the_default_file() -> None:
    for path in parse((CONFIG / "default.yaml").read_text(), "default.yaml").lines:
        assert at(path) is not None


def test_thresholds_that_are_called_stricter_are() -> None:
    text = (CONFIG / "examples" / "one-gpu-three-variants.yaml").read_text()
    told = re.search(r"recommends \(([\d.]+) and ([\d.]+),", text)
    assert told
    thresholds = load(CONFIG / "examples" / "one-gpu-three-variants.yaml", {}).groups["qwen3-8b"].thresholds
    for precision, recommended in zip(("int8", "int4"), told.groups(), strict=True):
        assert classifier.load("default").thresholds[precision] == float(recommended)
        assert 0 < thresholds[precision] < float(recommended)  # type: ignore[index]


def test_what_a_variant_holds_is_what_it_costs() -> None:
    for path in EXAMPLES:
        for group in load(path, {}).groups.values():
            for backend in group.backends:
                if backend.kind == "vllm" and backend.vllm.memory_share is not None:
                    assert backend.gpus == backend.vllm.memory_share, path
                elif backend.kind == "vllm" and backend.vllm.devices:
                    assert backend.gpus == len(backend.vllm.devices), path
