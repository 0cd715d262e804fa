"""`bitgear classifier train|eval|explain`: a Typer application that the router's command line mounts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated

import typer

from classifier.artefact import ArtefactError
from classifier.explain import explain as explain_request
from classifier.scoring import load

_NO_EXTRA = "This needs numpy and scikit-learn: pip install 'bitgear[train]'"
_NO_TORCH = "The head needs PyTorch: pip install 'bitgear[train,head]'"


def build_app() -> typer.Typer:
    """Return the application."""
    app = typer.Typer(
        help="The classifier: train it, measure it, see why a request got its risk.",
        no_args_is_help=True,
        add_completion=False,
    )
    app.command("train")(train)
    app.command("eval")(evaluate)
    app.command("explain")(explain)
    return app


def train(
    data: Annotated[Path, typer.Option(help="Folder of the public data.")],
    out: Annotated[Path, typer.Option(help="Artefact to write; its card goes beside it.")],
    kind: Annotated[str, typer.Option(help="Kind of model, as blend, guarded, linear, trees, words.")] = "linear",
    name: Annotated[str, typer.Option(help="Name of the artefact; part of its version.")] = "default",
    date: Annotated[str, typer.Option(help="Date written into it; today when empty.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    encoder: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a sentence encoder (sentence-transformers, model2vec); for `embedding` and `head`."
        ),
    ] = None,
) -> None:
    """Train a model on public outcomes, calibrate it, and write one artefact with its card."""
    try:
        from classifier.train import write
    except ImportError:
        raise typer.BadParameter(_NO_EXTRA) from None
    try:
        artefact = write(
            data, kind, out, name=name, date=date or datetime.date.today().isoformat(), seed=seed, encoder=encoder
        )
    except ImportError:
        raise typer.BadParameter(_NO_TORCH) from None
    except (ValueError, KeyError) as error:
        typer.secho(str(error), err=True, fg="red")
        raise typer.Exit(1) from None
    typer.echo(f"{out}  {artefact.version}")
    typer.echo(f"thresholds: {json.dumps(artefact.content['thresholds']['recommended'])}")


def evaluate(
    data: Annotated[Path, typer.Option(help="Folder of the public data.")],
    model: Annotated[str, typer.Option(help="Shipped model.")] = "default",
    artefact: Annotated[Path | None, typer.Option(help="Artefact file instead of a shipped one.")] = None,
    draw: Annotated[str, typer.Option(help="Benchmark whose curve is drawn: mmlu, gsm8k or mt_bench.")] = "mt_bench",
    svg: Annotated[Path | None, typer.Option(help="File to draw that curve into, as SVG.")] = None,
) -> None:
    """Print and draw what a trained artefact is worth: APGR, CPT50, CPT80, deferral curve, calibration error, with intervals.

    The shipped artefacts were trained on MMLU and GSM8K, so only MT-bench is held out here; cross-validated figures are
    printed by `benchmarks/classifier/routellm_table.py`.
    """
    try:
        from classifier.evaluation import BENCHMARKS, evaluation
        from classifier.plot import svg as drawn
    except ImportError:
        raise typer.BadParameter(_NO_EXTRA) from None
    if draw not in BENCHMARKS:
        raise typer.BadParameter(f"known benchmarks: {', '.join(BENCHMARKS)}", param_hint="--draw")
    try:
        classifier = load(model, artefact)
        found = evaluation(data, classifier, draw=draw)
        typer.echo(found.text)
        if svg is not None:
            svg.write_text(drawn(found.curves[draw], f"{classifier.artefact.version} on {draw}"), encoding="utf-8")
            typer.echo(f"drawn into {svg}")
    except (OSError, ValueError) as error:
        typer.secho(str(error), err=True, fg="red")
        raise typer.Exit(1) from None


def explain(
    request: Annotated[Path, typer.Argument(help="File with the JSON body of a request; `-` reads standard input.")],
    model: Annotated[str, typer.Option(help="Shipped model.")] = "default",
    artefact: Annotated[Path | None, typer.Option(help="Artefact file instead of a shipped one.")] = None,
) -> None:
    """Print a request's risks and the features that moved them most."""
    try:
        text = typer.get_text_stream("stdin").read() if str(request) == "-" else request.read_text(encoding="utf-8")
        body = json.loads(text)
        classifier = load(model, artefact)
    except (OSError, ValueError, RecursionError, ArtefactError) as error:
        typer.secho(str(error), err=True, fg="red")
        raise typer.Exit(1) from None
    if not isinstance(body, dict):
        typer.secho(f"{request}: expected an object, found {type(body).__name__}", err=True, fg="red")
        raise typer.Exit(1)
    typer.echo(explain_request(classifier, body))
