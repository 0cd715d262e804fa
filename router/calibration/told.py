"""Labels that others give: a judge model asked through litellm (extra `hosted`), and users' feedback from a file."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from router.calibration.collect import full_key, variant_key
from router.calibration.journal import Journal, answer_key
from router.calibration.prompts import Prompt, PromptError, parse
from router.calibration.sending import SendError, Target

Told = Mapping[tuple[str, str], float]
"""By prompt's key and variant: quality lost against full precision, in [-1, 1]."""
Ask = Callable[[str], Awaitable[str]]
"""A question to a judge's answer."""

_QUESTION = """Two answers to the same request follow. Which one is better? Reply with one word: A, B or TIE.

Request:
{request}

Answer A:
{a}

Answer B:
{b}
"""


def litellm_judge(model: str) -> Ask:
    """Return a judge that asks `model`, greedily, through litellm. Raises ImportError without the extra.

    What litellm reads from the environment counts: keys, and `OPENAI_API_BASE` for a server of one's own (`openai/NAME`).
    """
    # Unless told otherwise, it would fetch a list of prices on import.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm
    import openai

    async def ask(question: str) -> str:
        try:
            answer = await litellm.acompletion(
                model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=8
            )
        except openai.APIError as error:  # the base of all of litellm's
            raise SendError(f"judge {model}: {error}") from None
        return str(answer.choices[0].message.content or "")

    return ask


async def judged(
    prompts: Sequence[Prompt],
    full: Target,
    others: Sequence[Target],
    journal: Journal,
    *,
    ask: Ask,
    judge: str,
    max_tokens: int,
    concurrency: int,
    progress: Callable[[str, int, int], None],
) -> Told:
    """Return the judge's verdicts; equal answers lose nothing and are not asked about.

    Each pair is asked twice, once in either order, since judges favour a place; verdicts stand in the journal.
    """
    told: dict[tuple[str, str], float] = {}
    pairs = list(_pairs(prompts, full, others, journal, max_tokens))
    slots = asyncio.Semaphore(concurrency)
    done = 0

    async def one(prompt: Prompt, target: Target, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        nonlocal done
        at = (prompt.key, target.variant)
        if second["same"]:
            told[at] = 0.0
        elif "text" in second:
            key = answer_key("judge", judge, first["key"], second["key"])
            found = journal.get(key)
            if found is None:
                async with slots:
                    lost = await _asked(ask, prompt, str(first["text"]), str(second["text"]))
                found = {"key": key, "role": "judge", "judge": judge, "prompt": prompt.key, "lost": lost}
                journal.add(found)
            told[at] = float(found["lost"])
        done += 1
        progress(f"judge {judge}", done, len(pairs))

    async with asyncio.TaskGroup() as group:
        for pair in pairs:
            group.create_task(one(*pair))
    return told


def _pairs(
    prompts: Sequence[Prompt], full: Target, others: Sequence[Target], journal: Journal, max_tokens: int
) -> list[tuple[Prompt, Target, Mapping[str, Any], Mapping[str, Any]]]:
    found: list[tuple[Prompt, Target, Mapping[str, Any], Mapping[str, Any]]] = []
    for prompt in prompts:
        first = journal.get(full_key(full, prompt, max_tokens))
        if first is None or "error" in first:
            continue
        for target in others:
            second = journal.get(variant_key(target, first["key"]))
            if second is not None and "error" not in second:
                found.append((prompt, target, first, second))
    return found


async def _asked(ask: Ask, prompt: Prompt, full: str, own: str) -> float:
    request = "\n".join(f"{m['role']}: {m['content']}" for m in prompt.messages)
    straight = _verdict(await ask(_QUESTION.format(request=request, a=full, b=own)))
    turned = _verdict(await ask(_QUESTION.format(request=request, a=own, b=full)))
    return (straight - turned) / 2


def _verdict(answer: str) -> float:
    """1: A is better, -1: B, 0: neither, or no verdict."""
    words = answer.strip().upper().strip(".:*()\"'").split()
    return {"A": 1.0, "B": -1.0}.get(words[0].strip(".:*()\"'") if words else "", 0.0)


def read_feedback(path: Path) -> Told:
    """Return users' feedback from JSON lines: a prompt as in the prompts file, `variant`, and `lost` in [-1, 1].

    Several rows about one prompt and variant are averaged. Raises `PromptError`, which names line and field.
    """
    sums: dict[tuple[str, str], list[float]] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PromptError(f"{where}: not JSON: {error}") from None
        if not isinstance(row, dict) or not isinstance(row.get("variant"), str):
            raise PromptError(f"{where}: variant: expected the name of a variant")
        lost = row.get("lost")
        if isinstance(lost, bool) or not isinstance(lost, (int, float)) or not -1 <= lost <= 1:
            raise PromptError(f"{where}: lost: expected a number from -1 to 1, found {lost!r:.40}")
        rest = {name: value for name, value in row.items() if name not in ("variant", "lost")}
        sums.setdefault((parse(json.dumps(rest), where).key, row["variant"]), []).append(float(lost))
    return {at: sum(values) / len(values) for at, values in sums.items()}
