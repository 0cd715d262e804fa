"""What is printed: a `curl` that a shell reads as it was meant, plans with their arithmetic, simulation said plainly."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from backends.processes import ProcessSpec, VariantPlan
from router.cli.banner import SIMULATED, banner, curl, plan_text
from router.config.runtime import RuntimeVariant


@given(st.text(min_size=1))
def test_curl_survives_the_shell(model: str) -> None:
    words = shlex.split(curl("http://127.0.0.1:8400", model))
    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8400/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == model


def variant(**fields: object) -> RuntimeVariant:
    base = {"group": "g", "variant": "int4", "precision": "int4", "urls": ("http://x",), "served_model": "g"}
    return RuntimeVariant.model_validate({**base, **fields})


def test_banner_names_addresses_groups_and_variants() -> None:
    text = banner("http://a:1", "http://a:2", [variant()], {"g@int4": "made from x"}, Path("/logs"))
    assert all(part in text for part in ("http://a:1/v1", "http://a:2", "g@int4", "made from x", "/logs", "curl"))
    assert SIMULATED not in text
    assert "standard error" not in text
    assert "standard error" in banner("http://a:1", "http://a:2", [variant()], {}, None)


def test_banner_says_that_answers_are_simulated() -> None:
    assert SIMULATED in banner("http://a:1", "http://a:2", [variant(simulated=True)], {}, Path("/logs"))


def test_plan_prints_exact_commands_only_when_asked() -> None:
    spec = ProcessSpec("g@int4/0", ("python", "-m", "x y"), "http://x", env={"A": "b c"})
    plan = VariantPlan("g", "int4", "int4", "vllm", (spec,), "g", "made from x", 2.5, "1 + 1.5 GiB")
    assert "A='b c' python -m 'x y'" in plan_text([plan], commands=True)
    short = plan_text([plan], commands=False)
    assert "python" not in short
    assert "2.5 GiB (1 + 1.5 GiB)" in short
