"""`bitgear quantize`: one checkpoint at a lower precision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config


def quantize(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="Full-precision checkpoint: a folder, a name, a built-in.")
    ],
    precision: Annotated[str, typer.Option(help="int8 (W8A8) or int4 (W4A16).")],
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: among Bitgear's own models.")] = None,
    method: Annotated[str, typer.Option(help="auto, rtn (round to nearest) or llmcompressor.")] = "auto",
    calibration: Annotated[Path | None, typer.Option(help="Texts for llmcompressor, one a line.")] = None,
    config: ConfigOption = None,
) -> None:
    """Make a quantized checkpoint, as `bitgear up` does for variants that have none."""
    import asyncio

    from backends.processes import PlanError
    from backends.vllm import checkpoints, recipes
    from router.cli.display import make_display

    if precision not in recipes.MADE_PRECISIONS:
        fail(f"--precision: found {precision!r}, expected {' or '.join(recipes.MADE_PRECISIONS)}", BAD_INPUT)
    if method not in ("auto", "rtn", "llmcompressor"):
        fail(f"--method: found {method!r}, expected auto, rtn or llmcompressor", BAD_INPUT)
    local = load_config(config).local
    home = Path(local.home).expanduser()
    target = out or recipes.made_folder(source, precision, home)
    base = recipes.base_recipe(source, home)
    python = local.python or sys.executable
    name = f"{Path(source).name or source}@{precision}"
    with make_display() as display:

        def progress(message: str, fraction: float | None) -> None:
            display.update(name, message, fraction)

        async def run() -> None:
            if base is not None:
                await checkpoints.make([base], home=home, python=python, progress=progress)
            await checkpoints.quantize(
                base.target if base is not None else source,
                target,
                precision,
                home=home,
                python=python,
                method=method,  # type: ignore[arg-type]
                calibration=calibration,
                progress=progress,
            )

        try:
            asyncio.run(run())
        except PlanError as error:
            display.close()
            fail(str(error))
        except KeyboardInterrupt:
            display.close()
            fail("ended before the checkpoint was complete", 130)
    typer.echo(str(target))
