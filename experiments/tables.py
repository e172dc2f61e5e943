"""Are the probabilities right? graphuq and other tools on data that no setting was chosen on.

Every tool sees the same labels and is judged on the rows without one: pairs of digits, which are separable; ordinary
tables, whose classes overlap; both with a tenth of the labels wrong, and with one class cut to 5%. Data and tools:
table_data.py and table_peers.py; many.py and overlapping.py have data of many classes.

    python -m experiments.tables --out docs/reproduction                          # with the packages of the tables
    python -m experiments.tables --data FILE --jobs 16 --out docs/reproduction    # with a file made of them
    python -m experiments.calibration_page                                        # docs/calibration.md from the record
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import command, graphlearning_peers, style, table_data, table_peers
from experiments.experiment import Claim, Record, Trial
from experiments.spectra import cached
from experiments.table_scores import MEASURES, OURS, best_other, bins, measure, summarized, wrong_label_auroc
from graphuq import GraphClassifier, laplacian, spectrum
from graphuq.estimator.rows import average_equal, fingerprints
from graphuq.estimator.settings import LEARNED_TOLERANCE, make_graph
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import Graph
from graphuq.learning import learn
from graphuq.models import Probit
from graphuq.posterior import Mixture
from graphuq.spectrum import Spectrum

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

TITLE = "are the probabilities right? on separable data, ordinary tables, wrong labels and rare classes"
WRONG = 0.1
# Tables of fewer than 400 rows, of which 200 labels would leave too little to judge by.
SMALL = ("bupa", "haberman")
GROUPS = {
    "separable": "separable: pairs of digits",
    "separable, wrong": "separable, a tenth of the labels wrong",
    "tables": "ordinary tables",
    "tables, wrong": "ordinary tables, a tenth of the labels wrong",
    "rare": "pairs of digits, one class 5%",
    "rare tables": "ordinary tables, one class 5%",
    "many": "many classes",
    "many, tables": "ordinary tables of many classes",
}
# Numbers of labels are of each class there.
PER_CLASS = "many"
# Whose reliability is drawn.
DRAWN = (OURS, "LogisticRegression", "Gaussian process", "RandomForest, calibrated", "LabelSpreading")
# Fewer rows say nothing of a frequency.
FEWEST_SHOWN = 30


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tables: two-class tables.
        pairs: of MNIST digits.
        rare_tables: tables whose second class is cut to 5%.
        n_labels: drawn at random, each class at least once.
        n_draws: draws of labels of ordinary tables, all right; `n_draws_wrong` of them with wrong ones, and
            `n_draws_others` of all else.
        rare_labels: numbers of labels where one class is rare.
        graphlearning: whether the package GraphLearning is among the tools.
    """

    tables: tuple[str, ...] = table_data.REPORTING
    pairs: tuple[str, ...] = ("27", "28", "35", "56", "79", "89")
    rare_tables: tuple[str, ...] = ("banana", "cells", "k401k", "magic", "rotterdam", "wa_churn")
    n_labels: tuple[int, ...] = (10, 20, 50, 200)
    rare_labels: tuple[int, ...] = (20, 40, 200)
    n_draws: int = 10
    n_draws_wrong: int = 4
    n_draws_others: int = 6
    graphlearning: bool = graphlearning_peers.installed()


FULL = Config()
QUICK = Config(
    tables=("banana", "pima", "wa_churn"),
    pairs=("35",),
    rare_tables=("magic",),
    n_draws=1,
    n_draws_wrong=1,
    n_draws_others=1,
)


def trials(config: Config) -> list[Trial]:
    """Draws of labels, data by data in turn: processes do not wait for one spectrum, and a run cut off has all data."""
    pairs = [f"mnist {pair}" for pair in config.pairs]
    # group, data, numbers of labels, draws
    few = [n for n in config.n_labels if n * WRONG >= 2]
    plan: list[tuple[str, Sequence[str], Sequence[int], int]] = [
        ("separable", pairs, config.n_labels, config.n_draws_others),
        ("separable, wrong", pairs, few, config.n_draws_others),
        ("tables", config.tables, config.n_labels, config.n_draws),
        ("tables, wrong", config.tables, few, config.n_draws_wrong),
        ("rare", [f"{name} rare" for name in pairs], config.rare_labels, config.n_draws_others),
        (
            "rare tables",
            [f"{name} rare" for name in config.rare_tables],
            config.rare_labels,
            config.n_draws_others,
        ),
    ]
    found = [
        {"group": group, "data": data, "n_labels": n, "seed": seed}
        for group, names, counts, n_draws in plan
        for seed in range(n_draws)
        for n in counts
        for data in names
        if n < 200 or data not in SMALL
    ]
    # The longest first of each draw.
    return sorted(found, key=lambda trial: (trial["seed"], -trial["n_labels"]))


def of_tables(config: Any, group: str, left_out: set[tuple[str, int]]) -> list[Trial]:
    """Draws of labels of `config.tables`, but for some numbers of labels; a run cut off has all data."""
    return [
        {"group": group, "data": data, "n_labels": n, "seed": seed}
        for seed in range(config.n_draws)
        for n in reversed(config.n_labels)
        for data in config.tables
        if (data, n) not in left_out
    ]


def run(config: Any, trial: Trial) -> dict[str, Any]:
    """Every tool on one draw of labels."""
    problem = prepare(trial["data"])
    nodes, given = draw_labels(problem.y, trial)
    beliefs, probability = ours(problem, nodes, given)
    shares = np.bincount(problem.y) / len(problem.y)
    task = table_peers.Task(*for_others(trial["data"]), nodes, given, trial["seed"], shares)
    found = {OURS: probability, **table_peers.probabilities(task, graphlearning=config.graphlearning)}
    rest = np.setdiff1d(np.arange(len(problem.y)), nodes)
    truth = problem.y[rest]
    wrong = given != problem.y[nodes]
    return {
        **trial,
        "scores": {name: measure(p[rest], truth) for name, p in found.items()},
        "bins": {name: bins(found[name][rest], truth) for name in DRAWN},
        "wrong_label_auroc": wrong_label_auroc(beliefs, wrong, nodes) if wrong.any() else None,
    }


@dataclass(frozen=True, eq=False)
class Prepared:
    """What all draws of labels of one data set share.

    Attributes:
        y: the classes.
        features, n_bent: columns for the function of the features of the learned prior, and how many of them are bent.
        spectrum: of the graph that `GraphClassifier` makes.
        rows: what tells rows apart: those that are alike get the same answer.
    """

    y: Classes
    features: Array
    n_bent: int
    spectrum: Spectrum
    rows: list[bytes]


@lru_cache(maxsize=64)
def prepare(data: str) -> Prepared:
    """Of a data set by its name."""
    return prepared(*table_data.load(data))


def prepared(X: Array, y: Classes) -> Prepared:
    """What `GraphClassifier` computes before it sees a label; spectra are kept on disk."""
    settings = GraphClassifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of columns that are compared in robust units
        graph = make_graph(settings, X)
    n_modes = min(settings.n_modes, len(y))

    def compute() -> Spectrum:
        return spectrum.leading(laplacian.normalized(graph), n_modes=n_modes, tolerance=LEARNED_TOLERANCE)

    key = f"tables {n_modes} {sha256(graph.weights.data.tobytes()).hexdigest()}"
    piece = FeaturePiece.of(X)
    assert piece is not None
    return Prepared(y, piece.columns(X), piece.n_bent, cached(key, compute), fingerprints(X))


@lru_cache(maxsize=64)
def for_others(data: str) -> tuple[Array, Graph]:
    """The features and the graph that other tools see."""
    X, _ = table_data.load(data)
    return table_peers.standardized(X), table_peers.connected_graph(X)


def ours(problem: Prepared, nodes: Classes, given: Classes) -> tuple[Mixture, Array]:
    """What `GraphClassifier` answers, shape (n, K): its own steps, on a graph that is there already."""
    model = Probit(nodes, given, n_classes=int(problem.y.max()) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        found = learn(problem.spectrum, model, features=problem.features, n_bent=problem.n_bent)
    return found.posterior, average_equal(found.posterior.probability(), problem.rows)


def draw_labels(y: Classes, trial: Trial) -> tuple[Classes, Classes]:
    """The labeled rows, each class at least once, and their classes as given, of which a tenth may be wrong."""
    rng = np.random.default_rng([trial["seed"], trial["n_labels"], zlib.crc32(trial["data"].encode())])
    if trial["group"].startswith("many"):
        if trial["group"] == PER_CLASS:
            each = [rng.choice(np.flatnonzero(y == k), trial["n_labels"], replace=False) for k in np.unique(y)]
            nodes = np.concatenate(each)
        else:
            nodes = table_data.of_every_class(y, trial["n_labels"], rng)
        return nodes, y[nodes]
    while True:
        nodes = rng.choice(len(y), trial["n_labels"], replace=False)
        given = y[nodes].copy()
        if trial["group"].endswith("wrong"):
            flipped = rng.choice(len(nodes), round(WRONG * len(nodes)), replace=False)
            given[flipped] = 1 - given[flipped]
        if np.unique(given).size == 2:
            return nodes, given


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The record's values."""
    return summarized(results)


def claims(record: Record) -> list[Claim]:
    """Ours beside the best other tool by log-loss, for every group and number of labels."""
    found = []
    for group in record.values["groups"]:
        texts = []
        for name in (OURS, best_other(group["scores"], 0)):
            pairs = zip(MEASURES.values(), group["scores"][name], strict=True)
            texts.append(f"{name}: " + ", ".join(f"{word} {value[0]:.3f}" for word, value in pairs))
        words = "labels a class" if group["group"] == PER_CLASS else "labels"
        what = f"{GROUPS[group['group']]}, {group['n_labels']} {words}, {group['n_data']} data sets"
        found.append(Claim(what, "not in the paper", "; ".join(texts), None))
    return found


def draw(record: Record) -> Any:
    """A reliability diagram for each group, all its data pooled."""
    colors = (style.BLUE, style.ORANGE, style.GREEN, style.VERMILION, style.PURPLE)
    groups = [group for group in GROUPS if group in record.values["bins"]]
    n_columns = -(-(len(groups) + 1) // 2)
    figure, axes = style.subplots(2, n_columns, size=(3.1, 2.9))
    for ax, group in zip(axes.flat, groups, strict=False):
        counts = record.values["bins"][group]
        n_labels = min(counts, key=lambda n: abs(int(n) - (5 if group == PER_CLASS else 50)))
        for name, color, marker in zip(DRAWN, colors, "os^Dv", strict=True):
            rows, confidence, right = np.array(counts[n_labels][name])
            shown = rows >= FEWEST_SHOWN
            line = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.2, "label": name}
            ax.plot(confidence[shown] / rows[shown], right[shown] / rows[shown], **line)
        low = 0.0 if group.startswith("many") else 0.5
        ax.plot([low, 1], [low, 1], "--", color=style.GRAY, linewidth=0.8)
        words = f"{n_labels} labels{' a class' if group == PER_CLASS else ''}"
        ax.set(xlabel="confidence", ylabel="share right", ylim=(min(low, 0.35), 1.01))
        ax.set_title(f"{GROUPS[group]},\n{words}", fontsize=8)
    for ax in axes.flat[len(groups) :]:
        ax.axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=8)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("tables", __doc__, arguments, data=table_data.FILE)


if __name__ == "__main__":
    raise SystemExit(main())
