"""`bitgear feedback`: say how good an answer was; how far the judges agree with what people say."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from router.cli.common import BAD_INPUT, ConfigOption, ask, fail, load_config, reachable
from router.cli.shared import shared_state

_TIMEOUT_S = 5.0
"""Longest wait for an answer of Redis."""
feedback_app = typer.Typer(help="Quality of answers, as people and judges see it.", no_args_is_help=True)


@feedback_app.command("give")
def give(
    request_id: Annotated[str, typer.Argument(help="The answer's x-request-id.")],
    thumbs: Annotated[str | None, typer.Option(help="up or down.")] = None,
    score: Annotated[float | None, typer.Option(help="Quality in [0, 1].")] = None,
    comment: Annotated[str | None, typer.Option(help="In words; kept as feedback.comment_chars says.")] = None,
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the API key that made the request, if it had one.")
    ] = "OPENAI_API_KEY",
    url: Annotated[str | None, typer.Option(help="Address of the proxy. Default: from the configuration.")] = None,
    config: ConfigOption = None,
) -> None:
    """Say how good the answer to a request was; metrics go over HTTP alone."""
    if (thumbs is None) == (score is None):
        fail("give one of --thumbs and --score", BAD_INPUT)
    if url is None:
        server = load_config(config).server
        url = reachable(server.host, server.port)
    body: dict[str, Any] = {"request_id": request_id, "thumbs": thumbs, "score": score, "comment": comment}
    body = {name: value for name, value in body.items() if value is not None}
    key = os.environ.get(key_env)
    headers = {"authorization": f"Bearer {key}"} if key else None
    found = ask("POST", f"{url.rstrip('/')}/v1/feedback", body=body, headers=headers)
    typer.echo(f"{found['source']} {found['value']:g}: {'taken' if found['changed'] else 'known already'}")


@feedback_app.command("agreement")
def agreement(
    group: Annotated[str, typer.Argument(help="Model group.")],
    redis_url: Annotated[
        str | None,
        typer.Option("--redis", help="Its Redis. Default: redis.url, otherwise that of the Bitgear that runs here."),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.01, help="How far back, hours.")] = 24.0,
    limit: Annotated[int, typer.Option(min=1, help="Most requests that are read.")] = 50_000,
    config: ConfigOption = None,
) -> None:
    """Print how far each judge agrees with explicit feedback on the same answers."""
    import asyncio
    import time

    from redis.exceptions import RedisError

    from router.feedback.agreement import agreements
    from router.store.client import open_client
    from router.tuning.dataset import Records, read_records

    loaded = load_config(config)
    address, password = shared_state(loaded, redis_url)

    async def read() -> Records:
        async with open_client(address, password=password, timeout_s=_TIMEOUT_S) as client:
            return await read_records(
                client,
                group=group,
                since=time.time() - hours * 3600,
                limit=limit,
                events=loaded.events.stream,
                feedback=loaded.feedback.stream,
            )

    try:
        records = asyncio.run(read())
    except (RedisError, OSError, ValueError) as error:
        fail(f"Redis: {error or type(error).__name__}")
    found = agreements(records.records)
    typer.echo(f"{len(records.records)} requests, {records.labels} labels")
    for one in found:
        kappa = "none" if one.kappa is None else f"{one.kappa:.2f}"
        typer.echo(
            f"{one.judge}: {one.pairs} answers, agreed {one.agreed:.1%} (by chance {one.expected:.1%}), kappa {kappa}"
        )
    if not found:
        typer.echo("no answer has both a judge's verdict and explicit feedback")
