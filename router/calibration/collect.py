"""Sending: full precision answers each prompt, then each variant judges that answer and gives its own where it differs.

A variant that ranks every token of full precision's greedy answer first would have given the same answer, so it is asked
only where a rank says otherwise. (Ranks come from a prefill, answers from decoding: near ties may fall differently.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import httpx

from router.calibration.journal import Journal, answer_key
from router.calibration.prompts import Prompt
from router.calibration.sending import RefusedError, Sender, Target

Progress = Callable[[str, int, int], None]
"""Variant, answers it has given, answers it shall give."""


def full_key(target: Target, prompt: Prompt, max_tokens: int) -> str:
    """Return the key of full precision's answer."""
    return answer_key("full", target.variant, target.model, target.revision, prompt.key, max_tokens)


def variant_key(target: Target, full: str) -> str:
    """Return the key of a variant's judgement of the answer with the key `full`."""
    return answer_key("variant", target.variant, target.model, target.revision, full)


async def collect(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    *,
    max_tokens: int,
    concurrency: int,
    timeout_s: float,
    progress: Progress,
    open_answers: bool = True,
) -> None:
    """Ask for everything that the journal lacks. Raises `SendError`; what had arrived by then is in the journal.

    `concurrency` bounds the requests under way at each variant. Without `open_answers`, a variant that was scored isn't asked
    for its own answer to a prompt that nothing can check: that it differs is known, what it says only a judge would need.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=concurrency)
    # No proxy of the environment: the addresses are the operator's own.
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False, limits=limits) as client:
        senders = [Sender(client, target) for target in (full, *others)]
        # Bounded: full precision may not run ahead without end.
        queues: list[asyncio.Queue[Prompt | None]] = [asyncio.Queue(4 * concurrency) for _ in senders]
        done = dict.fromkeys((target.variant for target in (full, *others)), 0)

        def count(variant: str) -> None:
            done[variant] += 1
            progress(variant, done[variant], len(prompts))

        async def feed() -> None:
            for prompt in prompts:
                await queues[0].put(prompt)
            for _ in range(concurrency):
                await queues[0].put(None)

        async def ask_full() -> None:
            while (prompt := await queues[0].get()) is not None:
                key = full_key(full, prompt, max_tokens)
                if key not in journal:
                    journal.add(await _full(senders[0], prompt, key, max_tokens))
                count(full.variant)
                for queue in queues[1:]:
                    await queue.put(prompt)

        async def ask_variant(index: int) -> None:
            sender = senders[index]
            while (prompt := await queues[index].get()) is not None:
                found = journal.get(full_key(full, prompt, max_tokens))
                assert found is not None
                key = variant_key(sender.target, found["key"])
                if "error" not in found and key not in journal:
                    journal.add(await _variant(sender, prompt, found, key, max_tokens, open_answers))
                count(sender.target.variant)

        async def full_all() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(ask_full())
            for queue in queues[1:]:
                for _ in range(concurrency):
                    await queue.put(None)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(feed())
                group.create_task(full_all())
                for index in range(1, len(senders)):
                    for _ in range(concurrency):
                        group.create_task(ask_variant(index))
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from None


async def _full(sender: Sender, prompt: Prompt, key: str, max_tokens: int) -> dict[str, Any]:
    record = _record(key, sender.target, prompt)
    try:
        answer = await sender.answer(prompt, max_tokens)
    except RefusedError as error:
        return {**record, "error": str(error)}
    return {**record, "role": "full", **asdict(answer)}


async def _variant(
    sender: Sender, prompt: Prompt, full: dict[str, Any], key: str, max_tokens: int, open_answers: bool
) -> dict[str, Any]:
    record = {**_record(key, sender.target, prompt), "role": "variant", "full": full["key"]}
    ids = tuple(full["ids"])
    try:
        score = None
        if ids:
            try:
                score = await sender.score(tuple(full["prompt_ids"]), ids)
                record |= {"logprobs": score.logprobs, "ranks": score.ranks}
            except RefusedError as error:
                record["unscored"] = str(error)
        if score is not None and all(rank == 1 for rank in score.ranks):
            return {**record, "same": True}
        if score is not None and prompt.task == "open" and not open_answers:
            return {**record, "same": False}
        answer = await sender.answer(prompt, max_tokens)
        return {**record, "same": answer.text == full["text"], "text": answer.text, "ids": answer.ids}
    except RefusedError as error:
        return {**record, "error": str(error)}


def _record(key: str, target: Target, prompt: Prompt) -> dict[str, Any]:
    return {
        "key": key,
        "variant": target.variant,
        "precision": target.precision,
        "model": target.model,
        "revision": target.revision,
        "prompt": prompt.key,
    }


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
