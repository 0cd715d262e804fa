"""`bitgear classifier ...`: hands over to the classifier's own commands."""

from __future__ import annotations

import typer


def classifier(context: typer.Context) -> None:
    """Train the classifier, measure it, see why a request got its risk."""
    from classifier.cli import build_app

    build_app()(args=context.args, prog_name="bitgear classifier")
