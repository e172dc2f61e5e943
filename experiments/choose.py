"""By which numbers were the constants of the learned prior chosen? Log-loss on the data for choosing, one change at a time.

Every constant is moved away from what it is, the others staying: the hyperprior (learning/hyperprior.py), with the shares
of bent columns and of the constant alone, how soon columns bend (feature_piece.py), the number of neighbors, when
modes are enough, and, for many classes, what is believed of the temperature. All changes see the same labels, so that
differences are taken draw by draw. Tables that are reported (table_data.REPORTING) are not touched.

    python -m experiments.choose --jobs 16                     # docs/reproduction/choose.json
    python -m experiments.choose --jobs 16 --data FILE         # FILE by python -m experiments.table_data --choosing
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import command, style, table_data
from experiments.experiment import Claim, Record, Trial
from experiments.hyperprior import rows as separable_rows
from experiments.spectra import cached
from experiments.table_scores import mean_and_error
from graphuq import GraphClassifier, calibration, feature_piece, laplacian, spectrum
from graphuq.estimator.settings import LEARNED_TOLERANCE
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import knn
from graphuq.learning import Hyperprior, LogNormal, learn, learned
from graphuq.models import Probit
from graphuq.posterior import Mixture, mixture
from graphuq.spectrum import Spectrum

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

TITLE = "the constants of the learned prior, moved one at a time on the data for choosing"
DEFAULT = "as it is"
MOVES = (1 / 3, 3.0)
MOVED = ("diffusion", "graph", "linear", "constant", "mistakes", "beside_linear", "n_effective")
LEFT_OUT = ("linear", "bent", "mistakes", "n_effective")
CONSTANTS_ALONE = (None, 0.07, 0.6)
BENT_SHARES, BENDINGS = (0.4, 0.6, 0.95), (0.75, 3.0)
NEIGHBORS = (7, 10, 15)
ENOUGH_MODES = (4e-2, 4e-3, 4e-4)
TEMPERATURES = ((0.0, 1.2), (0.15, 1.2), (0.45, 1.2), (0.3, 1.1), (0.3, 1.5))
OF_SINGLES = (0.0, 0.3, 0.5, 1.0)
# Of fewer than 300 rows.
SMALL = ("ais", "fgl", "hayes-roth", "tae")


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tables: two-class tables for choosing.
        separable: data of experiments/hyperprior.py.
        many: data of many classes, for choosing; `overlapping` are tables of many classes, also with one label of each.
        settings: numbers of labels, and the share of them that is wrong.
        per_class: labels of each of many classes; `of_overlapping` numbers of labels of the tables.
        n_draws: draws of labels.
    """

    tables: tuple[str, ...] = table_data.CHOOSING
    separable: tuple[str, ...] = ("digits 49", "digits 38", "voting", "cancer")
    many: tuple[str, ...] = table_data.CHOOSING_MANY
    overlapping: tuple[str, ...] = table_data.CHOOSING_OVERLAPPING
    settings: tuple[tuple[int, float], ...] = ((20, 0.0), (50, 0.0), (50, 0.1))
    per_class: tuple[int, ...] = (1, 2, 5)
    of_overlapping: tuple[int, ...] = (20, 50, 150)
    n_draws: int = 2


FULL = Config()
QUICK = Config(
    tables=("titanic",),
    separable=("digits 49",),
    many=("vehicle",),
    overlapping=("tae",),
    settings=((20, 0.0),),
    of_overlapping=(20,),
    n_draws=1,
)


def trials(config: Config) -> list[Trial]:
    """Draws of labels, the longest data first of each draw."""
    two = [
        {"data": data, "n_labels": n, "wrong": wrong}
        for n, wrong in config.settings
        for data in (*config.tables, *config.separable)
    ]
    many = [{"data": data, "per_class": n} for n in reversed(config.per_class) for data in config.many]
    many += [{"data": data, "per_class": 1} for data in config.overlapping]
    overlapping = [
        {"data": data, "of_many": n}
        for n in reversed(config.of_overlapping)
        for data in config.overlapping
        if n < 100 or data not in SMALL
    ]
    return [{**each, "seed": seed} for seed in range(config.n_draws) for each in (*many, *overlapping, *two)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """The log-loss of every change on one draw of labels."""
    X, y = load(trial["data"])
    rng = np.random.default_rng([trial["seed"], zlib.crc32(trial["data"].encode())])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        if "per_class" in trial:
            nodes = np.concatenate(
                [_some(rng, np.flatnonzero(y == k), trial["per_class"]) for k in range(y.max() + 1)]
            )
            found = temperatures(X, y, nodes)
        elif "of_many" in trial:
            found = temperatures(X, y, table_data.of_every_class(y, trial["of_many"], rng))
        else:
            nodes = _some(rng, np.arange(len(y)), trial["n_labels"])
            while np.unique(y[nodes]).size < 2:
                nodes = _some(rng, np.arange(len(y)), trial["n_labels"])
            given = y[nodes].copy()
            wrong = _some(rng, np.arange(len(nodes)), round(trial["wrong"] * len(nodes)))
            given[wrong] = 1 - given[wrong]
            found = changes(X, y, nodes, given)
    return {**trial, "losses": found}


def _some(rng: np.random.Generator, rows: Classes, n: int) -> Classes:
    return rng.choice(rows, min(n, max(1, len(rows) // 2)) if n else 0, replace=False)


@lru_cache(maxsize=64)
def load(data: str) -> tuple[Array, Classes]:
    """A table, separable data, or data of many classes, by name."""
    if data in (*table_data.CHOOSING, *table_data.CHOOSING_MANY, *table_data.CHOOSING_OVERLAPPING):
        return table_data.load(data)
    X, y = separable_rows(data)
    return X, (y > 0).astype(np.int64)


def modes_of(X: Array, n_neighbors: int) -> Spectrum:
    """Those of the graph, kept on disk."""
    n_modes = min(GraphClassifier().n_modes, len(X))

    def compute() -> Spectrum:
        L = laplacian.normalized(knn(X, n_neighbors=n_neighbors))
        return spectrum.leading(L, n_modes=n_modes, tolerance=LEARNED_TOLERANCE)

    return cached(f"choose {n_neighbors} {n_modes} {zlib.crc32(X.tobytes())}", compute)


def features_of(X: Array) -> dict[str, Any]:
    """The columns of a feature piece, by its constants as they are now, as `learn` takes them."""
    piece = FeaturePiece.of(X)
    assert piece is not None
    return {"features": piece.columns(X), "n_bent": piece.n_bent}


def hyperpriors() -> dict[str, Hyperprior]:
    """The default with one number moved, or left out."""
    default = Hyperprior()
    found = {}
    for name in MOVED:
        believed: LogNormal = getattr(default, name)
        for move in MOVES:
            moved = replace(believed, median=believed.median * move)
            found[f"{name} {moved.median:.3g}"] = replace(default, **{name: moved})
    for name in LEFT_OUT:
        left_out: dict[str, Any] = {name: None}
        found[f"no {name}"] = replace(default, **left_out)
    return found | shares()


def shares() -> dict[str, Hyperprior]:
    """The default with more or less of what bends, and of the structure that is a constant alone."""
    found = {f"bent {share:g}": replace(Hyperprior(), bent=share) for share in BENT_SHARES}
    for weight in CONSTANTS_ALONE:
        name = "no constant_alone" if weight is None else f"constant_alone {weight:g}"
        found[name] = replace(Hyperprior(), constant_alone=weight)
    return found


def changes(X: Array, y: Classes, nodes: Classes, given: Classes) -> dict[str, float]:
    """The log-loss on the rows without a label, of two classes, as it is and with each change."""
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    model = Probit(nodes, given, n_classes=2)
    modes, features = modes_of(X, GraphClassifier().n_neighbors), features_of(X)

    def loss(modes: Spectrum, features: dict[str, Any], **settings: Any) -> float:
        posterior = learn(modes, model, **features, **settings).posterior
        return calibration.log_loss(posterior.probability(rest), y[rest])

    found = {DEFAULT: loss(modes, features)}
    for name, hyperprior in hyperpriors().items():
        found[name] = loss(modes, features, hyperprior=hyperprior)
    for value in BENDINGS:
        with constant(feature_piece, "BENDING", value):
            found[f"BENDING {value:g}"] = loss(modes, features_of(X))
    for n_neighbors in NEIGHBORS:
        found[f"n_neighbors {n_neighbors}"] = loss(modes_of(X, n_neighbors), features)
    for value in ENOUGH_MODES:
        with constant(learned, "CARRIED", value):
            found[f"CARRIED {value:g}"] = loss(modes.truncate(modes.n_modes // 4), features, more=doubling(modes))
    return found


def doubling(modes: Spectrum) -> Callable[[Spectrum], Spectrum | None]:
    """From some of the modes to twice as many, as long as there are more."""

    def more(known: Spectrum) -> Spectrum | None:
        n_modes = min(2 * known.n_modes, modes.n_modes)
        return modes.truncate(n_modes) if n_modes > known.n_modes else None

    return more


def temperatures(X: Array, y: Classes, nodes: Classes) -> dict[str, float]:
    """The log-loss on the rows without a label, of many classes, with each belief of the temperature and of what bends."""
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    model = Probit(nodes, y[nodes], n_classes=int(y.max()) + 1)
    modes, features = modes_of(X, GraphClassifier().n_neighbors), features_of(X)
    bare = replace(learn(modes, model, **features).posterior, temperature=1.0)
    probability = bare.probability(rest)

    def loss(posterior: Mixture) -> float:
        return calibration.log_loss(calibration.apply_temperature(probability, posterior.temperature), y[rest])

    found = {DEFAULT: loss(bare.tempered())}
    single = bool(np.all(np.bincount(y[nodes]) == 1))
    name, values = ("EXPONENT_OF_SINGLES", OF_SINGLES) if single else ("TEMPERATURE", TEMPERATURES)
    for value in values:
        with constant(mixture, name, value):
            found[f"{name} {value}"] = loss(bare.tempered())
    for name, hyperprior in {"no bent": replace(Hyperprior(), bent=None), **shares()}.items():
        posterior = learn(modes, model, **features, hyperprior=hyperprior).posterior
        found[name] = calibration.log_loss(posterior.probability(rest), y[rest])
    return found


@contextmanager
def constant(module: Any, name: str, value: Any) -> Iterator[None]:
    """Another value, for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def kind_of(result: Trial) -> str:
    """What a trial's losses are averaged with."""
    if "per_class" in result:
        return "tables, one label a class" if result["data"] in table_data.CHOOSING_OVERLAPPING else "many classes"
    if "of_many" in result:
        return "tables, many classes"
    kind = "tables" if result["data"] in table_data.CHOOSING else "separable"
    return f"{kind}, a tenth wrong" if result["wrong"] else kind


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """For each kind of data the mean log-loss as it is, and of each change the mean difference over data and draws."""
    kinds: dict[str, dict[str, list[float]]] = {}
    levels: dict[str, list[float]] = {}
    for result in results:
        kind, losses = kind_of(result), result["losses"]
        levels.setdefault(kind, []).append(losses[DEFAULT])
        for name, loss in losses.items():
            if name != DEFAULT:
                kinds.setdefault(kind, {}).setdefault(name, []).append(loss - losses[DEFAULT])
    return {
        kind: {
            DEFAULT: mean_and_error(levels[kind]),
            "n": len(levels[kind]),
            "changes": {name: mean_and_error(each) for name, each in found.items()},
        }
        for kind, found in kinds.items()
    }


def claims(record: Record) -> list[Claim]:
    """For each kind of data, the changes that would have been better by more than a standard error."""
    found = []
    for kind, each in record.values.items():
        better = {name: pair for name, pair in each["changes"].items() if pair[0] < -(pair[1] or 0.0)}
        told = "; ".join(f"{name} by {-mean:.4f} ± {error or 0:.4f}" for name, (mean, error) in better.items())
        level = each[DEFAULT][0]
        what = f"{kind}, {each['n']} draws, log-loss {level:.3f}: better than the constants as they are"
        found.append(Claim(what, "not in the paper", told or "none", None))
    return found


def draw(record: Record) -> Any:
    """The difference that each change makes, a panel for each kind of data."""
    kinds = record.values
    most = max(len(each["changes"]) for each in kinds.values())
    figure, axes = style.subplots(1, len(kinds), size=(3.4, 1.0 + 0.16 * most), squeeze=False)
    for ax, (kind, each) in zip(axes[0], kinds.items(), strict=True):
        names = list(each["changes"])[::-1]
        means, errors = zip(
            *((mean, error or 0.0) for mean, error in (each["changes"][n] for n in names)), strict=True
        )
        ax.errorbar(means, range(len(names)), xerr=errors, fmt="o", color=style.BLUE, markersize=3, linewidth=1)
        ax.axvline(0, color=style.GRAY, linewidth=0.8)
        ax.set_yticks(range(len(names)), names, fontsize=6)
        ax.set_title(kind, fontsize=8)
        ax.set_xlabel("log-loss less that of the constants", fontsize=7)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("choose", __doc__, arguments, data=table_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
