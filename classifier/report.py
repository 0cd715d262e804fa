"""What an artefact's risks look like on general traffic, and the thresholds that follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from classifier import data
from classifier.calibration import Calibration
from classifier.conversation import view
from classifier.evaluate import Array
from classifier.features import extract
from classifier.models import build

INT4_SHARE = 0.65
"""Share of general traffic that the recommended threshold lets go to INT4."""
INT8_SHARE = 0.93
"""Share that the recommended threshold lets go to INT8 or lower."""
_ENGLISH = ("mt_bench", "koala_vicuna")
_CHINESE = ("belle_zh",)
GENERAL = _ENGLISH + _CHINESE
"""Sources of general traffic."""


def distributions(folder: Path, content: Mapping[str, Any]) -> dict[str, dict[str, Array]]:
    """Return each source's INT4 and INT8 risks, one number per prompt."""
    model = build(content["model"]["kind"], content["model"]["parameters"])
    calibration = Calibration.from_content(content["calibration"])
    found: dict[str, dict[str, Array]] = {}
    for source, requests in data.general_prompts(folder).items():
        risks = []
        for request in requests:
            features = extract(view(request))
            z = calibration.standard(model.score(features), features)
            risks.append(calibration.probabilities(z, features))
        found[source] = {name: np.array([risk[name] for risk in risks], dtype=np.float64) for name in ("int4", "int8")}
    return found


def recommended(risks: Mapping[str, Mapping[str, Array]]) -> dict[str, float]:
    """Return thresholds at which the wanted shares go down, in general traffic that is half English and half Chinese."""
    english = {name: np.concatenate([risks[s][name] for s in _ENGLISH]) for name in ("int4", "int8")}
    chinese = {name: np.concatenate([risks[s][name] for s in _CHINESE]) for name in ("int4", "int8")}
    found = {}
    for name, share in (("int4", INT4_SHARE), ("int8", INT8_SHARE)):
        values = np.concatenate([english[name], chinese[name]])
        weights = np.concatenate([np.full(len(part[name]), 0.5 / len(part[name])) for part in (english, chinese)])
        order = np.argsort(values, kind="stable")
        at = min(int(np.searchsorted(np.cumsum(weights[order]), share)), len(values) - 1)
        # Rounded up, so that the prompt at the quantile itself may go.
        found[name] = float(f"{np.ceil(values[order][at] * 1e5) / 1e5:.5f}")
    return {
        "fp8": found["int8"],
        "int8": found["int8"],
        "nvfp4": found["int4"],
        "mxfp4": found["int4"],
        "int4": found["int4"],
    }


def summary(risks: Mapping[str, Mapping[str, Array]], thresholds: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return, per source: prompts, quantiles 10/50/90% of both risks, and the shares that the thresholds let go down."""
    found: dict[str, dict[str, Any]] = {}
    for source, by_name in risks.items():
        to_int4 = by_name["int4"] <= thresholds["int4"]
        found[source] = {
            "prompts": len(to_int4),
            "int4": [float(f"{q:.5f}") for q in np.quantile(by_name["int4"], [0.1, 0.5, 0.9])],
            "int8": [float(f"{q:.5f}") for q in np.quantile(by_name["int8"], [0.1, 0.5, 0.9])],
            "share_int4": round(float(to_int4.mean()), 3),
            "share_int8_or_lower": round(float((to_int4 | (by_name["int8"] <= thresholds["int8"])).mean()), 3),
        }
    return found
