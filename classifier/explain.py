"""Why a request got its risk: each feature's part, in words."""

from __future__ import annotations

from collections.abc import Mapping

from classifier.features import NAMES
from classifier.scoring import Trained
from classifier.segments import segment_of

_SHOWN = 8


def explain(classifier: Trained, request: Mapping[str, object]) -> str:
    """Return a table: the risks, then the features that moved the score most, with their values."""
    features = classifier.features(request)
    risks = classifier.risk_of(features)
    calibration = classifier.artefact.calibration
    conversation = features.conversation
    lines = [f"version      {risks.version}", f"uncertainty  {risks.uncertainty:.4f}"]
    lines += [f"risk {name:7s} {risk:.5f}" for name, risk in risks.by_precision.items()]
    lines.append(
        f"turns {conversation.turns}, characters {conversation.total_chars}, images {conversation.images}, "
        f"tools {conversation.tools}, structured {'yes' if conversation.structured else 'no'}, "
        f"sampled {'yes' if conversation.sampled else 'no'}"
    )
    if features.small_talk:
        lines.append("small talk and nothing else: the least risk, whatever the model says")
    elif calibration.suspicious(features):
        lines.append(f"unlikely form{f' ({features.odd})' if features.odd else ''}: the risk is not let under a floor")
    segments = classifier.artefact.segments
    if segments is not None:
        name = segment_of(features)
        proven = any(value is not None for value in segments.decided.get(name, ()))
        decides = "the prompt" if segments.per_prompt else "the segment's mean"
        lines.append(f"segment {name}: {'proven for some precisions, otherwise ' if proven else ''}{decides} decides")
    values = dict(zip(NAMES, features.vector, strict=True))
    parts = classifier.artefact.model.contributions(features)
    lines.append("feature                 value    moves int4's log-odds by")
    for name, part in sorted(parts.items(), key=lambda item: -abs(item[1]))[:_SHOWN]:
        value = f"{values[name]:10.4f}" if name in values else " " * 10
        lines.append(f"{name:18s} {value}    {part / calibration.scale * calibration.slope:+.4f}")
    if conversation.structured:
        lines.append(f"{'schema or tools':18s} {'':10s}    {calibration.structured[-1]:+.4f}")
    return "\n".join(lines)
