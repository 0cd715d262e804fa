"""An artefact learns from pairs of answers to own traffic, and only where that foretells pairs it did not see."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import pytest

from classifier.adapt import LEAST_PAIRS, Adaption, Seen, adapt
from classifier.artefact import Artefact, dump, parse
from classifier.features import NAMES, Features
from classifier.models import base_score
from classifier.risks import PRECISIONS
from classifier.scoring import Trained, load

WORDS = (
    "the",
    "of",
    "cat",
    "runs",
    "value",
    "proof",
    "integral",
    "sum",
    "house",
    "total",
    "angle",
    "sort",
    "why",
    "how",
)
DIGITS = NAMES.index("digit_share")


def requests(count: int, seed: int) -> list[dict[str, object]]:
    rng = random.Random(seed)
    found: list[dict[str, object]] = []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(5, 120))
        numbers = [str(rng.randint(1, 9999)) for _ in range(rng.randint(0, 40))]
        text = words + numbers
        rng.shuffle(text)
        found.append({"messages": [{"role": "user", "content": " ".join(text) + rng.choice(["?", ".", ""])}]})
    return found


class Read(NamedTuple):
    """What a classifier finds in a request: features, the standard score, its model's base score, and the risks."""

    features: Features
    z: float
    score: float
    risks: Mapping[str, float]


@cache
def known(base: Trained, seed: int) -> list[Read]:
    """The first requests of a seed as `base` reads them; `read` adds what it needs."""
    return []


def read(base: Trained, count: int, seed: int) -> list[Read]:
    """So many requests of a seed as `base` reads them: most tests begin with the same ones, which are read once."""
    found, calibration = known(base, seed), base.artefact.calibration
    if len(found) < count:
        for request in requests(count, seed)[len(found) :]:
            features = base.features(request)
            whole = base.artefact.model.score(features)
            z = calibration.standard(whole, features)
            score = base_score(base.artefact.model, features) if base.artefact.kind == "adapted" else whole
            found.append(Read(features, z, score, base.risk_of(features).by_precision))
    return found[:count]


def pairs(base: Trained, count: int, risk: Callable[[Features, float], float], seed: int = 1) -> list[Seen]:
    """Pairs whose answers are worse with the probability that `risk` plants, of features and the base's standard score."""
    rng = random.Random(seed + 100)
    found = []
    for i, (features, z, score, risks) in enumerate(read(base, count, seed)):
        precision = "int4" if i % 3 else "int8"
        planted = risk(features, z) * (1.0 if precision == "int4" else 0.5)
        worse = float(rng.random() < planted)
        found.append(Seen(precision, worse, risks[precision], score, features.vector))
    return found


def made(base: Trained, adaption: Adaption) -> Trained:
    assert adaption.content is not None, adaption.reason
    data, _ = dump({**adaption.content, "name": "own", "date": "2026-11-30"})
    return Trained(parse(data, "test"))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_digits(features: Features, z: float) -> float:
    return 0.6 if features.vector[DIGITS] > 0.3 else 0.1


@pytest.fixture(scope="module")
def base() -> Trained:
    return load()


@pytest.fixture(scope="module")
def learnt(base: Trained) -> Adaption:
    return adapt(base.artefact, pairs(base, 1500, by_digits))


def test_an_order_that_traffic_shows_is_learnt(base: Trained, learnt: Adaption) -> None:
    assert "corrected" in learnt.reason
    own = made(base, learnt)
    assert own.artefact.kind == "adapted"
    fresh = [(r, base.features(r)) for r in requests(300, 99)]
    hard = [own.risk(r).by_precision["int4"] for r, f in fresh if f.vector[DIGITS] > 0.4]
    easy = [own.risk(r).by_precision["int4"] for r, f in fresh if f.vector[DIGITS] < 0.2]
    assert sum(hard) / len(hard) > 0.45
    assert sum(easy) / len(easy) < 0.2
    for request, _ in fresh:
        risks = own.risk(request).by_precision
        assert risks["int8"] <= risks["int4"]
    parts = own.artefact.model.contributions(fresh[0][1])
    assert "digit_share" in parts


def test_the_same_order_with_other_probabilities_is_only_calibrated(base: Trained) -> None:
    adaption = adapt(base.artefact, pairs(base, 1500, lambda _, z: sigmoid(-0.5 + 0.8 * z)))
    assert "same order" in adaption.reason
    own = made(base, adaption)
    assert own.artefact.kind == base.artefact.kind
    before, after = [], []
    for request in requests(600, 99):
        # Text of unlikely form has a floor, before and after.
        if base.artefact.calibration.suspicious(base.features(request)):
            continue
        before.append(base.risk(request).by_precision["int4"])
        after.append(own.risk(request).by_precision["int4"])
    assert 0.25 < sum(after) / len(after) < 0.55
    assert len(set(after)) > 20
    order = sorted(range(len(before)), key=before.__getitem__)
    assert [after[i] for i in order] == pytest.approx(sorted(after), abs=1e-9)


def test_where_risks_are_right_already_nothing_changes(base: Trained, learnt: Adaption) -> None:
    own = made(base, learnt)

    def as_foretold(features: Features, z: float) -> float:
        return own.risk_of(features).by_precision["int4"]

    seen = [pair for pair in pairs(own, 2200, as_foretold, seed=7) if pair.precision == "int4"]
    again = adapt(own.artefact, seen)
    assert again.content is None
    assert "nothing" in again.reason


def test_what_was_corrected_once_is_corrected_anew_and_not_on_top(base: Trained, learnt: Adaption) -> None:
    own = made(base, learnt)
    turned = adapt(own.artefact, pairs(own, 1500, lambda f, _: 0.7 - by_digits(f, 0.0), seed=7))
    twice = made(own, turned)
    assert twice.artefact.content["model"]["parameters"]["base"]["kind"] == base.artefact.kind
    fresh = [(r, base.features(r)) for r in requests(300, 99)]
    many = [twice.risk(r).by_precision["int4"] for r, f in fresh if f.vector[DIGITS] > 0.4]
    few = [twice.risk(r).by_precision["int4"] for r, f in fresh if f.vector[DIGITS] < 0.2]
    assert sum(few) / len(few) > 2 * sum(many) / len(many)


def test_by_chance_nothing_is_learnt(base: Trained) -> None:
    """Without anything to learn a change is made in at most one draw of eight (about 2.5% each are expected)."""
    flat = made(base, adapt(base.artefact, pairs(base, 3000, lambda *_: 0.3)))
    changes = [adapt(flat.artefact, pairs(flat, 250, lambda *_: 0.3, seed=s)).content for s in range(20, 28)]
    assert sum(content is not None for content in changes) <= 1


@pytest.mark.parametrize(("count", "risk"), [(LEAST_PAIRS - 1, 0.5), (400, 0.0), (400, 2.0)])
def test_too_little_is_told(base: Trained, count: int, risk: float) -> None:
    adaption = adapt(base.artefact, pairs(base, count, lambda *_: risk))
    assert adaption.content is None
    assert "needed" in adaption.reason


def test_weights_count_as_so_many_requests(base: Trained) -> None:
    seen = pairs(base, 1200, lambda *_: 0.5)
    light = [pair._replace(weight=3.0 if pair.worse else 1.0) for pair in seen]
    own = made(base, adapt(base.artefact, light))
    risks = [own.risk(request).by_precision["int4"] for request in requests(100, 99)]
    plain = made(base, adapt(base.artefact, seen))
    assert sum(risks) / 100 > sum(plain.risk(r).by_precision["int4"] for r in requests(100, 99)) / 100 + 0.1


def test_equal_pairs_give_an_equal_artefact(base: Trained) -> None:
    seen = pairs(base, 600, by_digits)
    assert adapt(base.artefact, seen).content == adapt(base.artefact, seen).content


def test_an_adapted_model_is_read_strictly(base: Trained, learnt: Adaption) -> None:
    adaption = learnt
    assert adaption.content is not None
    good = {**adaption.content, "name": "own", "date": "2026-11-30"}
    for broken in ({"scale": 0.0}, {"weight": -1.0}, {"linear": []}, {"base": {"kind": "adapted", "parameters": {}}}):
        model = {"kind": "adapted", "parameters": {**good["model"]["parameters"], **broken}}
        with pytest.raises(ValueError, match=r"adapted|scale|linear|base"):
            dump({**good, "model": model})


def test_it_holds_its_place_in_the_artefacts_file(base: Trained, learnt: Adaption) -> None:
    own = made(base, learnt)
    assert isinstance(own.artefact, Artefact)
    assert own.artefact.content["labels"] == "pairs of answers to own traffic"
    assert set(own.artefact.content["reference"]) == {*NAMES, "risk_int4"}


def test_of_a_precision_with_few_pairs_nothing_is_learnt_and_others_are(base: Trained) -> None:
    made_of = pairs(base, 500, by_digits)
    rare = [pair._replace(precision="int8") for pair in made_of[:3]]
    common = [pair._replace(precision="int4") for pair in made_of[3:]]
    found = adapt(base.artefact, [*rare, *common])
    assert found.figures["pairs"] == len(common)
    assert found.content == adapt(base.artefact, common).content is not None
    assert {moved.precision for moved in found.moved} == {"int4"}


def test_a_fold_without_a_precision_is_foretold_all_the_same(base: Trained) -> None:
    made_of = [pair._replace(precision="int4") for pair in pairs(base, 500, by_digits)]
    # One request, asked again and again: all its pairs are in one fold.
    alike = [made_of[0]._replace(precision="int8", worse=float(i % 2)) for i in range(60)]
    assert adapt(base.artefact, [*made_of, *alike]).figures["by_precision"] == {"int4": 500, "int8": 60}


def test_requests_that_are_all_alike_tell_too_little(base: Trained) -> None:
    alike = [pair._replace(worse=float(i % 2)) for i, pair in enumerate(pairs(base, 10, by_digits) * 40)]
    found = adapt(base.artefact, [pair._replace(precision="int4") for pair in alike])
    assert found.content is None
    assert "10 different requests" in found.reason


def test_a_bent_line_of_the_base_gives_way_to_what_own_pairs_say(base: Trained) -> None:
    content = {key: value for key, value in base.artefact.content.items() if key != "sha256"}
    bends = {"points": [-3.0, 0.0, 3.0], "bends": [[0.0, 0.0, 1.0]] * len(PRECISIONS)}
    data, bent = dump({**content, "calibration": {**content["calibration"], **bends}})
    adaption = adapt(bent, pairs(Trained(parse(data, "test")), 1500, lambda _, z: sigmoid(-0.5 + 0.8 * z)))
    assert bent.calibration.bends
    assert not made(base, adaption).artefact.calibration.bends
