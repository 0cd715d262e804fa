"""How far a suffix can push risk down, and what odd inputs do.

    python benchmarks/classifier/robustness.py --data DATA [--artefact FILE]

Attack: the attacker knows the model and appends text to a hard prompt, the best for each prompt of many candidates (words with
the lowest weights where the model is lexical, easy prompts, filler), to get the lowest INT4 risk. Reported: how many of the hard
prompts (above the INT4 threshold) fall below it, and by how much risk falls, for the best suffix, for one suffix for all, and
with the same texts put before the prompt; the share of ordinary prompts that may go to INT4; the bound that holds for any input.
"""

from __future__ import annotations

import argparse
import json
import random
from math import exp
from pathlib import Path

from classifier import load
from classifier.data import chat, general_prompts
from classifier.scoring import Trained

FILLERS = (
    " ok",
    "!",
    "\n",
    " hello",
    " thank you",
    " Write a short poem about the sea.",
    "好",
    " 谢谢",
    " the",
    ".",
    " 7",
    "=",
    "🙂",
)
TIMES = (1, 10, 100, 1000)


def suffixes(classifier: Trained, easy: list[str]) -> list[str]:
    """Return candidate suffixes."""
    found = [filler * times for filler in FILLERS for times in TIMES]
    found += [" " + text for text in easy]
    return found + [
        " " + " ".join(words[:size]) for words in (light_words(classifier),) for size in (5, 20, 80, 300) if words
    ]


def light_words(classifier: Trained) -> list[str]:
    """Return the words that lower the score most, if the model has words."""
    inner = getattr(classifier.artefact.model, "inner", classifier.artefact.model)
    for _, model, *_ in getattr(inner, "members", ()) or (("", inner),):
        weights = getattr(model, "weights", None)
        if isinstance(weights, dict):
            return [word.decode() for word, _ in sorted(weights.items(), key=lambda item: item[1])[:300]]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with prompts/ and routellm/")
    parser.add_argument("--artefact", type=Path, default=None)
    parser.add_argument("--prompts", type=int, default=200, help="hard prompts attacked")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/classifier_robustness.json"))
    options = parser.parse_args()
    classifier = load(artefact=options.artefact)
    threshold = classifier.artefact.content["thresholds"]["recommended"]["int4"]
    sources = general_prompts(options.data)
    texts = [
        str(request["messages"][0]["content"])  # type: ignore[index]
        for source in ("mt_bench", "koala_vicuna", "belle_zh", "gsm8k_train")
        for request in sources[source]
    ]
    random.Random(0).shuffle(texts)
    risks = {text: classifier.risk(chat(text)).by_precision["int4"] for text in texts[:2000]}
    ordered = sorted(risks, key=lambda text: risks[text])
    easy = [text for text in ordered if len(text) < 400][:10]
    hard = [text for text in texts[:2000] if risks[text] > threshold][: options.prompts]
    candidates = suffixes(classifier, easy)

    calibration = classifier.artefact.calibration
    floor = 1 / (1 + exp(-(calibration.intercepts[-1] - calibration.slope * calibration.clip)))
    down, before, falls, by_suffix = 0, 0, [], dict.fromkeys(candidates, 0)
    for text in hard:
        lowest = risks[text]
        for suffix in candidates:
            risk = classifier.risk(chat(text + suffix)).by_precision["int4"]
            by_suffix[suffix] += risk <= threshold
            lowest = min(lowest, risk)
        down += lowest <= threshold
        before += any(
            classifier.risk(chat(prefix.strip() + " " + text)).by_precision["int4"] <= threshold
            for prefix in candidates[::2]
        )
        falls.append((risks[text] - lowest) / risks[text])
    falls.sort()
    result = {
        "version": classifier.artefact.version,
        "hard_prompts": len(hard),
        "suffixes": len(candidates),
        "pushed_below_threshold": round(down / len(hard), 3),
        "pushed_by_one_suffix_mean": round(sum(by_suffix.values()) / len(candidates) / len(hard), 3),
        "pushed_by_best_of_every_second_as_prefix": round(before / len(hard), 3),
        "ordinary_prompts_at_int4": round(sum(risk <= threshold for risk in risks.values()) / len(risks), 3),
        "odd_ordinary_prompts": round(sum(bool(classifier.features(chat(text)).odd) for text in risks) / len(risks), 4),
        "risk_fell_median": round(falls[len(falls) // 2], 3),
        "risk_fell_most": round(falls[-1], 3),
        "threshold": threshold,
        "floor_for_any_input": round(floor, 5),
        "best_suffixes": [
            {"suffix": suffix[:60], "characters": len(suffix), "pushed": round(count / len(hard), 3)}
            for suffix, count in sorted(by_suffix.items(), key=lambda item: -item[1])[:8]
        ],
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
