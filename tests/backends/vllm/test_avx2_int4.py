from __future__ import annotations

import subprocess
import sys
from importlib import metadata

from backends.vllm.engine import PLUGIN


def test_it_is_announced_to_vllm() -> None:
    (entry,) = (e for e in metadata.entry_points(group="vllm.general_plugins") if e.name == PLUGIN)
    assert entry.value == "backends.vllm.avx2_int4:register"


def test_loading_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, backends.vllm.avx2_int4; print(sorted({'torch', 'vllm', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
