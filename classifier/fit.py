"""Fitting of models and of the calibration; needs the extra `train`. What comes back is plain parameters for an artefact."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from classifier.encoders import EncoderError, Known, fingerprint, open_encoder
from classifier.evaluate import Array
from classifier.features import GROWING, NAMES, Features
from classifier.models import Model, build

MEMBERS = ("growing", "linear", "trees", "words")
"""What a blend is made of; `growing` because text added to a request can only raise it."""
_SHARPNESS = 2.0
_WORDS_AT_ENDS = 40
_ENDS = (100, 200, 400)
_RIDGE = 30.0
_WORD_RIDGE = 10.0
_WORD_SMOOTHING = 4.0
_LEAST_PROMPTS = 4
_TREES = 30
_GROWING_TREES = 30
_NEAREST = 100
_WORDS_OF_A_NEIGHBOUR = 24
_EMBEDDING_RIDGE = 1.0
_TAIL = 0.005


@dataclass(frozen=True, slots=True)
class Examples:
    """Training rows: features, and what is to be predicted (the gain, centred within its source)."""

    features: Sequence[Features]
    target: Array
    groups: Sequence[str]
    """Rows of one group (subject, task, or the prompt itself) stay together when the rows are split."""
    encoder: Path | None = None
    """Folder of a sentence encoder, for models that need one."""
    known: Known | None = None
    """Vectors of these prompts from that encoder, where they were computed before."""
    sources: Sequence[str] = ()
    """The benchmark of each row, where rows come from several: a blend is then also judged on benchmarks left out."""

    def part(self, rows: Sequence[int]) -> Examples:
        """Return some of the rows."""
        kept = list(rows)
        return Examples(
            [self.features[i] for i in kept],
            self.target[kept],
            [self.groups[i] for i in kept],
            encoder=self.encoder,
            known=self.known,
            sources=[self.sources[i] for i in kept] if self.sources else (),
        )

    def matrix(self) -> Array:
        """Return the features as rows."""
        return matrix(self.features)

    def weights(self) -> Array:
        """Return each row's weight, 1 on average: a benchmark counts by the square root of its rows.

        So that what holds on one large benchmark alone does not outvote what holds on all of them.
        """
        if not self.sources:
            return np.ones(len(self.target))
        _, index, sizes = np.unique(np.array(self.sources), return_inverse=True, return_counts=True)
        drawn = 1 / np.sqrt(sizes[index])
        return np.asarray(drawn / drawn.mean(), dtype=np.float64)

    def vectors(self) -> Array:
        """Return the encoder's vectors as rows. Raises `EncoderError` when there is no encoder."""
        if self.encoder is None and self.known is None:
            raise EncoderError("an embedding model needs the folder of a sentence encoder: `--encoder FOLDER`")
        encoder = self.known if self.known is not None else open_encoder(self.encoder)  # type: ignore[arg-type]
        return np.array([encoder.encode(item.conversation.text) for item in self.features], dtype=np.float64)

    def named_encoder(self) -> dict[str, object]:
        """Return what an artefact says of the encoder: its folder (none when only vectors are known) and fingerprint."""
        if self.encoder is None:
            return {"folder": "", "fingerprint": self.known.fingerprint if self.known is not None else ""}
        return {"folder": str(self.encoder), "fingerprint": fingerprint(self.encoder)}

    def spread(self, scores: Sequence[float]) -> tuple[float, float]:
        """Return the weighted mean and standard deviation (1 where there is none) of these rows' scores."""
        values, weights = np.array(scores), self.weights()
        mean = float(np.average(values, weights=weights))
        return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=weights))) or 1.0

    def built(self, kind: str, parameters: Mapping[str, object]) -> Model:
        """Return the model of these parameters, its encoder replaced by the known vectors where there are any."""
        return build(kind, parameters, self.known)


def matrix(features: Sequence[Features]) -> Array:
    """Return the vectors as rows."""
    return np.array([item.vector for item in features], dtype=np.float64)


def ranges(rows: Array) -> tuple[Array, Array]:
    """Return each feature's range without its outermost half percents."""
    return np.quantile(rows, _TAIL, axis=0), np.quantile(rows, 1 - _TAIL, axis=0)


def fit_linear(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Ridge regression on standardised features, clipped to their range."""
    rows, weights = examples.matrix(), examples.weights()
    low, high = ranges(rows)
    clipped = np.clip(rows, low, high)
    centre = np.average(clipped, axis=0, weights=weights)
    scale = np.sqrt(np.average((clipped - centre) ** 2, axis=0, weights=weights))
    scale[scale < 1e-9] = np.inf
    model = Ridge(alpha=_RIDGE).fit((clipped - centre) / scale, examples.target, sample_weight=weights)
    return {
        "intercept": float(model.intercept_),
        "weights": rounded(model.coef_ / scale),
        "centre": rounded(centre),
        "low": rounded(low),
        "high": rounded(high),
    }


def fit_nothing(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Return no parameters: length, constant and random learn nothing."""
    return {}


def fit_trees(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Gradient-boosted trees of sixteen leaves; more of what `GROWING` counts never means an easier prompt.

    Rows count the same, whatever their benchmark: leaves are bounded by rows and not by weight, so a few heavy rows would make
    leaves of their own.
    """
    return _boosted(np.round(examples.matrix(), 6), examples.target, _TREES, 16, seed)


def fit_growing(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Trees of eight leaves on the `GROWING` features alone: no text can be appended that lowers the score."""
    rows = np.round(examples.matrix(), 6)
    rows[:, [name not in GROWING for name in NAMES]] = 0.0
    return _boosted(rows, examples.target, _GROWING_TREES, 8, seed, examples.weights())


def _boosted(
    rows: Array, target: Array, trees: int, leaves: int, seed: int, weights: Array | None = None
) -> dict[str, object]:
    model = HistGradientBoostingRegressor(
        max_iter=trees,
        learning_rate=0.12,
        max_leaf_nodes=leaves,
        min_samples_leaf=40,
        l2_regularization=5.0,
        monotonic_cst=[int(name in GROWING) for name in NAMES],
        early_stopping=False,
        random_state=seed,
    )
    # On so few rows, threads cost more than they give.
    with threadpool_limits(limits=1):
        model.fit(rows, target, sample_weight=weights)
    return export_trees(model)


def export_trees(model: HistGradientBoostingRegressor) -> dict[str, object]:
    """Return a fitted ensemble as the flat lists that `models.trees` reads."""
    feature: list[int] = []
    value: list[float] = []
    right: list[int] = []
    roots: list[int] = []

    def put(nodes: Any, index: int) -> None:
        node = nodes[index]
        at = len(value)
        if node["is_leaf"]:
            feature.append(-1)
            value.append(float(f"{node['value']:.6g}"))
            right.append(0)
            return
        feature.append(int(node["feature_idx"]))
        value.append(float(f"{node['num_threshold']:.9g}"))
        right.append(0)
        put(nodes, int(node["left"]))
        right[at] = len(value)
        put(nodes, int(node["right"]))

    for (tree,) in model._predictors:
        roots.append(len(value))
        put(tree.nodes, 0)
    start = float(np.ravel(model._baseline_prediction)[0])
    return {"start": start, "roots": roots, "feature": feature, "value": value, "right": right}


def fit_words(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Ridge regression on the distinct words that stand in at least four prompts, each row divided by its norm."""
    counter = CountVectorizer(binary=True, analyzer=_words, min_df=_LEAST_PROMPTS, dtype=np.float64)
    rows = counter.fit_transform([item.words for item in examples.features])
    norms = 1 / np.sqrt(np.asarray(rows.sum(axis=1)).ravel() + _WORD_SMOOTHING)
    # Rare words weigh more, as in TF-IDF.
    idf = np.log((1 + rows.shape[0]) / (1 + np.asarray(rows.sum(axis=0)).ravel())) / 3
    scaled = rows.multiply(norms[:, None]).multiply(idf[None, :]).tocsr()
    model = Ridge(alpha=_WORD_RIDGE).fit(scaled, examples.target, sample_weight=examples.weights())
    weights = model.coef_ * idf
    names = counter.get_feature_names_out()
    kept = {
        str(name): float(f"{weight:.4g}") for name, weight in zip(names, weights, strict=True) if abs(weight) > 1e-4
    }
    return {
        "intercept": float(model.intercept_),
        "smoothing": _WORD_SMOOTHING,
        "weights": kept,
        "ends": _WORDS_AT_ENDS,
    }


def _words(words: frozenset[bytes]) -> list[str]:
    """Words without digits or odd bytes, none long: single words say nothing of who wrote a prompt."""
    return [word.decode("ascii") for word in words if word.isascii() and word.isalpha() and len(word) <= 20]


def fit_neighbours(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Return the training prompts' rarest words and targets: what the nearest are looked up in."""
    counter = CountVectorizer(binary=True, analyzer=_words, min_df=_LEAST_PROMPTS, dtype=np.float64)
    rows = counter.fit_transform([item.words for item in examples.features]).tocsr()
    idf = np.log((1 + rows.shape[0]) / np.asarray(rows.sum(axis=0)).ravel())
    kept = []
    for number in range(rows.shape[0]):
        found = rows.indices[rows.indptr[number] : rows.indptr[number + 1]].tolist()
        kept.append(sorted(sorted(found, key=lambda i: (-idf[i], i))[:_WORDS_OF_A_NEIGHBOUR]))
    return {
        "words": counter.get_feature_names_out().tolist(),
        "idf": rounded(idf),
        "rows": kept,
        "target": [float(f"{value:.4g}") for value in examples.target],
        "nearest": _NEAREST,
        "prior": 1.0,
    }


def fit_embedding(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Ridge regression on a sentence encoder's vectors. Raises `EncoderError` when the examples name no encoder."""
    rows = examples.vectors()
    model = Ridge(alpha=_EMBEDDING_RIDGE).fit(rows, examples.target, sample_weight=examples.weights())
    return {**examples.named_encoder(), "intercept": float(model.intercept_), "weights": rounded(model.coef_)}


def fit_head(examples: Examples, seed: int = 0) -> dict[str, object]:
    """A small neural head (`heads`): on the features, and on the encoder's vectors where the examples name one."""
    from classifier.heads import train_head

    rows = examples.matrix()
    low, high = ranges(rows)
    clipped = np.clip(rows, low, high)
    centre, scale = clipped.mean(axis=0), clipped.std(axis=0)
    # A feature that is the same everywhere says nothing.
    scale[scale < 1e-9] = 1e9
    inputs, encoder, enlarged = (clipped - centre) / scale, {}, 0.0
    if examples.encoder is not None or examples.known is not None:
        vectors, encoder = examples.vectors(), examples.named_encoder()
        enlarged = float(np.sqrt(vectors.shape[1]))
        inputs = np.concatenate([inputs, enlarged * vectors], axis=1)
    layers = train_head(inputs, examples.target, examples.weights(), seed)
    return {
        **encoder,
        "centre": rounded(centre),
        "scale": rounded(scale),
        "low": rounded(low),
        "high": rounded(high),
        "vector_scale": enlarged,
        **layers,
    }


def fit_blend(examples: Examples, seed: int = 0) -> dict[str, object]:
    """The smooth maximum of the members' scores, standardised on the training prompts. Nothing is chosen by the rows."""
    return blend_of(examples, {kind: FITTERS[kind](examples, seed) for kind in MEMBERS})


def blend_of(examples: Examples, fitted: Mapping[str, dict[str, object]]) -> dict[str, object]:
    """Return the blend of members that were fitted on these examples."""
    members = []
    for kind in MEMBERS:
        model = examples.built(kind, fitted[kind])
        mean, scale = examples.spread([model.score(item) for item in examples.features])
        members.append({"kind": kind, "parameters": fitted[kind], "mean": mean, "scale": scale})
    return {"members": members, "sharpness": _SHARPNESS, "ends": []}


def fit_guarded(examples: Examples, seed: int = 0) -> dict[str, object]:
    """The same blend, held to a text's beginnings and ends."""
    return guarded_of(fit_blend(examples, seed))


def guarded_of(blend: dict[str, object]) -> dict[str, object]:
    """Return the guarded form of a fitted blend."""
    return {**blend, "ends": list(_ENDS)}


FITTERS: Mapping[str, Callable[[Examples, int], dict[str, object]]] = {
    "linear": fit_linear,
    "trees": fit_trees,
    "words": fit_words,
    "growing": fit_growing,
    "neighbours": fit_neighbours,
    "embedding": fit_embedding,
    "head": fit_head,
    "blend": fit_blend,
    "guarded": fit_guarded,
    "length": fit_nothing,
    "constant": fit_nothing,
    "random": fit_nothing,
}
"""Kind to the function that fits its parameters."""


@dataclass(frozen=True, slots=True)
class Platt:
    """`P(loss | z) = sigmoid(intercept + slope * z)` and the covariance of both."""

    intercept: float
    slope: float
    covariance: tuple[float, float, float]


def fit_platt(z: Array, loss: Array, prior_mean: float, prior_sd: float, floor: float = 0.0) -> Platt:
    """Return the most likely intercept and slope, with a normal prior on the slope, which is not let under `floor`.

    With few losses the data say little about the slope; the prior says what is believed without them, and the covariance
    (Laplace) what is still unknown with both.
    """
    rate = (loss.sum() + 0.5) / (len(loss) + 1)
    theta = np.array([np.log(rate / (1 - rate)), prior_mean])
    rows = np.stack([np.ones_like(z), z], axis=1)
    precision = np.diag([1e-3, 1 / prior_sd**2])
    centre = np.array([0.0, prior_mean])
    hessian = precision
    for _ in range(50):
        p = 1 / (1 + np.exp(-rows @ theta))
        gradient = rows.T @ (loss - p) - precision @ (theta - centre)
        hessian = rows.T @ (rows * (p * (1 - p))[:, None]) + precision
        step = np.linalg.solve(hessian, gradient)
        theta = theta + step
        if float(np.abs(step).max()) < 1e-9:
            break
    covariance = np.linalg.inv(hessian)
    slope = max(float(theta[1]), floor)
    return Platt(
        intercept=intercept_for(float(loss.mean()), slope * z) if slope != theta[1] else float(theta[0]),
        slope=slope,
        covariance=(float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])),
    )


def intercept_for(rate: float, moved: Array) -> float:
    """Return the intercept with which the mean of `sigmoid(intercept + moved)` is `rate`; in [-20, 20].

    Newton's method within a bracket that each step narrows, and bisection where a step leaves it.
    """
    low, high, middle = -20.0, 20.0, 0.0
    for _ in range(80):
        p = 1 / (1 + np.exp(-(middle + moved)))
        missing = rate - float(p.mean())
        if missing > 0:
            low = middle
        else:
            high = middle
        slope = float((p * (1 - p)).mean())
        following = middle + missing / slope if slope > 0 else math.inf
        if abs(following - middle) < 1e-14 * max(1.0, abs(middle)):
            break
        middle = following if low < following < high else (low + high) / 2
    return middle


def rounded(values: Array) -> list[float]:
    """Return numbers of seven digits: artefacts stay small, scores don't change."""
    return [float(f"{value:.7g}") for value in values]
