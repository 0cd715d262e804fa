"""`bitgear calibrate`: a classifier made from a group's own variants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config
from router.cli.operator import TokenOption, operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.calibration.journal import Journal
    from router.calibration.prompts import Prompt
    from router.calibration.sending import Target
    from router.calibration.told import Ask, Told

_NO_EXTRA = "calibration needs numpy and scikit-learn: pip install 'bitgear[train]'"


def calibrate(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group to calibrate.")],
    prompts: Annotated[Path, typer.Option(help="Prompts, JSON lines; docs/calibration.md says which fields.")],
    out: Annotated[Path, typer.Option(help="Artefact to write; its card and the journal lie beside it.")],
    url: Annotated[
        list[str] | None,
        typer.Option(help="VARIANT=URL of a running server, for each variant. Default: ask the running proxy."),
    ] = None,
    admin: Annotated[
        str | None, typer.Option(help="Address of the admin API. Default: from the configuration.")
    ] = None,
    token: TokenOption = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, tokens.")] = 128,
    concurrency: Annotated[int, typer.Option(min=1, max=1024, help="Requests under way at each variant.")] = 8,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait for one answer, seconds.")] = 600,
    label: Annotated[
        str, typer.Option(help="What the risk foretells: auto, divergence, agreement, task, judge, feedback.")
    ] = "auto",
    judge: Annotated[str | None, typer.Option(help="Judge differing answers by this model, through litellm.")] = None,
    feedback: Annotated[Path | None, typer.Option(help="Users' feedback, JSON lines.")] = None,
    margin: Annotated[float, typer.Option(min=0, max=1, help="Loss that counts as none, share of quality.")] = 0.01,
    kind: Annotated[str, typer.Option(help="Kind of model, as blend, guarded, linear, trees, words.")] = "blend",
    name: Annotated[str, typer.Option(help="Name of the artefact. Default: the group's.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    open_answers: Annotated[
        bool,
        typer.Option(help="Ask variants for answers that nothing can check; a judge needs them, no other label does."),
    ] = True,
    offline: Annotated[bool, typer.Option(help="Ask no variant: learn from what the journal holds.")] = False,
    collect_only: Annotated[bool, typer.Option(help="Fill the journal, make no artefact.")] = False,
    config: ConfigOption = None,
) -> None:
    """Send prompts to full precision and every variant, label the differences, and write a calibrated artefact.

    A run that was ended goes on where it was: answers stand in the journal, OUT with the suffix .journal.jsonl.
    """
    from router.calibration.journal import Journal, JournalError
    from router.calibration.prompts import PromptError, read_prompts
    from router.calibration.sending import SendError
    from router.calibration.targets import TargetError, from_admin, from_urls, split
    from router.calibration.told import litellm_judge, read_feedback

    try:
        listed = read_prompts(prompts)
        said = read_feedback(feedback) if feedback is not None else None
        named = split(from_urls(url, group)) if url else None
        if not collect_only:
            # It takes seconds to load: after what is seen at once, before anybody is asked.
            _check(kind, label)
        asker = litellm_judge(judge) if judge else None
        if named is None:
            rows = operator(admin, token, config).ask("GET", "/admin/variants")
            named = split(from_admin(rows, group, load_config(config).groups.get(group)))
        full, others = named
    except (PromptError, TargetError) as error:
        fail(str(error), BAD_INPUT)
    except ImportError:
        fail("--judge needs litellm: pip install 'bitgear[hosted]'", BAD_INPUT)
    try:
        with Journal(out.with_suffix(".journal.jsonl")) as journal:
            if not offline:
                _collect(
                    *(listed, full, others, journal),
                    max_tokens=max_tokens,
                    concurrency=concurrency,
                    timeout_s=timeout,
                    open_answers=open_answers,
                )
            verdicts = None
            if asker is not None and judge is not None:
                verdicts = _judge(
                    *(listed, full, others, journal),
                    ask=asker,
                    judge=judge,
                    max_tokens=max_tokens,
                    concurrency=concurrency,
                )
            if collect_only:
                typer.echo(f"{journal.path}: {len(journal)} answers")
                return
            from classifier.own_card import tables
            from router.calibration.run import Options, calibrated

            options = Options(
                name=name or group, label=label, margin=margin, kind=kind, seed=seed, max_tokens=max_tokens
            )
            try:
                made = calibrated(listed, full, others, journal, out, options, judged=verdicts, feedback=said)
            except (ValueError, OSError) as error:
                fail(str(error))
    except (JournalError, SendError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("ended; the same command goes on where this one was", 130)
    typer.echo("\n".join(tables(made.content)))
    typer.echo(f"{out}  {made.version}")


def _check(kind: str, label: str) -> None:
    """Leave the command where no artefact could be made: before variants are asked for an hour, not after it."""
    try:
        from classifier.fit import FITTERS
        from classifier.labels import LABELS
        from router.calibration import run  # noqa: F401 - whether all that it needs is here
    except ImportError:
        fail(_NO_EXTRA)
    for option, given, known in (("--kind", kind, tuple(FITTERS)), ("--label", label, ("auto", *LABELS))):
        if given not in known:
            fail(f"{option}: found {given!r}, expected one of {', '.join(known)}", BAD_INPUT)


def _collect(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    *,
    max_tokens: int,
    concurrency: int,
    timeout_s: float,
    open_answers: bool,
) -> None:
    import asyncio

    from router.calibration.collect import collect
    from router.cli.display import make_display

    with make_display() as display:

        def progress(variant: str, done: int, total: int) -> None:
            display.update(variant, f"{total} prompts", done / total)
            if done == total:
                display.done(variant, f"{total} prompts")

        asyncio.run(
            collect(
                prompts,
                full,
                others,
                journal,
                max_tokens=max_tokens,
                concurrency=concurrency,
                timeout_s=timeout_s,
                progress=progress,
                open_answers=open_answers,
            )
        )


def _judge(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    *,
    ask: Ask,
    judge: str,
    max_tokens: int,
    concurrency: int,
) -> Told:
    import asyncio

    from router.calibration.told import judged
    from router.cli.display import make_display

    with make_display() as display:
        return asyncio.run(
            judged(
                *(prompts, full, others, journal),
                ask=ask,
                judge=judge,
                max_tokens=max_tokens,
                concurrency=concurrency,
                progress=lambda name, done, total: display.update(name, f"{total} pairs", done / total),
            )
        )
