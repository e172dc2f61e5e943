"""Are the probabilities right? graphuq and other tools on data that no setting was chosen on.

Every tool sees the same labels and is judged on the rows without one: pairs of digits, which are separable; ordinary
tables, whose classes overlap; both with a tenth of the labels wrong, and with one class cut to 5%; and data of many
classes. Data and tools: table_data.py and table_peers.py.

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

from experiments import problems, table_data, table_peers
from experiments.experiment import Trial
from graphuq import GraphClassifier, calibration, laplacian, spectrum
from graphuq.graph import Graph, knn
from graphuq.learning import learn
from graphuq.linear import LinearPiece
from graphuq.models import Probit
from graphuq.posterior import Mixture
from graphuq.rows import average_equal, fingerprints
from graphuq.spectrum import Spectrum
from graphuq.suspicion import suspicious_labels

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

TITLE = "are the probabilities right? on separable data, ordinary tables, wrong labels, rare and many classes"
OURS = "graphuq"
MEASURES = {"log_loss": "log-loss", "ece": "ECE", "accuracy": "accuracy"}
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
}
# Whose reliability is drawn.
DRAWN = (OURS, "LogisticRegression", "Gaussian process", "RandomForest, calibrated", "LabelSpreading")
# Digits of the record: draws differ in the second or third.
DIGITS = 4


@dataclass(frozen=True)
class Config:
    """What is run.

    Attributes:
        tables: two-class tables.
        pairs: of MNIST digits.
        rare_tables: tables whose second class is cut to 5%.
        many: data of more than two classes.
        n_labels: drawn at random, each class at least once.
        per_class: labels of each of many classes.
        n_draws: draws of labels; of wrong ones in tables `n_draws_wrong`.
    """

    tables: tuple[str, ...] = table_data.REPORTING
    pairs: tuple[str, ...] = ("27", "28", "35", "56", "79", "89")
    rare_tables: tuple[str, ...] = ("banana", "cells", "k401k", "magic", "rotterdam", "wa_churn")
    many: tuple[str, ...] = (*table_data.MANY, "mnist")
    n_labels: tuple[int, ...] = (10, 20, 50, 200)
    per_class: tuple[int, ...] = (1, 2, 5, 10)
    n_draws: int = 10
    n_draws_wrong: int = 5


FULL = Config()
QUICK = Config(
    tables=("banana", "pima", "wa_churn"),
    pairs=("35",),
    rare_tables=("magic",),
    many=("iris", "vowel"),
    n_draws=1,
    n_draws_wrong=1,
)


def trials(config: Config) -> list[Trial]:
    """Draws of labels, data by data in turn: processes do not wait for one spectrum, and a run cut off has all data."""
    pairs = [f"mnist {pair}" for pair in config.pairs]
    # group, data, numbers of labels, draws
    few = [n for n in config.n_labels if n * WRONG >= 2]
    plan: list[tuple[str, Sequence[str], Sequence[int], int]] = [
        ("many", config.many, config.per_class, config.n_draws),
        ("separable", pairs, config.n_labels, config.n_draws),
        ("separable, wrong", pairs, few, config.n_draws),
        ("tables", config.tables, config.n_labels, config.n_draws),
        ("tables, wrong", config.tables, few, config.n_draws_wrong),
        ("rare", [f"{name} rare" for name in pairs], few, config.n_draws),
        ("rare tables", [f"{name} rare" for name in config.rare_tables], few, config.n_draws),
    ]
    found = [
        {"group": group, "data": data, "n_labels": n, "seed": seed}
        for group, names, counts, n_draws in plan
        for seed in range(n_draws)
        for n in counts
        for data in names
        if n < 200 or data not in SMALL
    ]
    # The longest first: most labels, and most classes.
    return sorted(found, key=lambda trial: (trial["seed"], trial["group"] != "many", -trial["n_labels"]))


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Every tool on one draw of labels."""
    problem = prepare(trial["data"])
    nodes, given = draw_labels(problem.y, trial)
    beliefs, probability = ours(problem, nodes, given)
    task = table_peers.Task(problem.standardized, problem.graph, nodes, given, trial["seed"])
    found = {OURS: probability, **table_peers.probabilities(task)}
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
        features: columns for the linear piece of the learned prior.
        spectrum: of the graph that `GraphClassifier` makes.
        rows: what tells rows apart: those that are alike get the same answer.
        standardized: the features as other tools see them.
        graph: for other tools.
    """

    y: Classes
    features: Array
    spectrum: Spectrum
    rows: list[bytes]
    standardized: Array
    graph: Graph


@lru_cache(maxsize=64)
def prepare(data: str) -> Prepared:
    """What `GraphClassifier` computes before it sees a label, and the same for the others; spectra are kept on disk."""
    X, y = table_data.load(data)
    settings = GraphClassifier()
    n_modes = min(settings.n_modes, len(y))

    def compute() -> Spectrum:
        graph = knn(X, n_neighbors=settings.n_neighbors)
        return spectrum.leading(laplacian.normalized(graph), n_modes=n_modes)

    key = f"tables {settings.n_neighbors} {n_modes} {sha256(X.tobytes()).hexdigest()}"
    piece = LinearPiece.of(X)
    assert piece is not None
    return Prepared(
        y=y,
        features=piece.columns(X),
        spectrum=problems.cached(key, compute),
        rows=fingerprints(X),
        standardized=table_peers.standardized(X),
        graph=table_peers.connected_graph(X),
    )


def ours(problem: Prepared, nodes: Classes, given: Classes) -> tuple[Mixture, Array]:
    """What `GraphClassifier` answers, shape (n, K): its own steps, on a graph that is there already."""
    model = Probit(nodes, given, n_classes=int(problem.y.max()) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        beliefs = learn(problem.spectrum, model, features=problem.features).posterior
    return beliefs, average_equal(beliefs.probability(), problem.rows)


def draw_labels(y: Classes, trial: Trial) -> tuple[Classes, Classes]:
    """The labeled rows, each class at least once, and their classes as given, of which a tenth may be wrong."""
    rng = np.random.default_rng([trial["seed"], trial["n_labels"], zlib.crc32(trial["data"].encode())])
    if trial["group"] == "many":
        each = [rng.choice(np.flatnonzero(y == k), trial["n_labels"], replace=False) for k in np.unique(y)]
        nodes = np.concatenate(each)
        return nodes, y[nodes]
    while True:
        nodes = rng.choice(len(y), trial["n_labels"], replace=False)
        given = y[nodes].copy()
        if trial["group"].endswith("wrong"):
            flipped = rng.choice(len(nodes), round(WRONG * len(nodes)), replace=False)
            given[flipped] = 1 - given[flipped]
        if np.unique(given).size == 2:
            return nodes, given


def measure(probability: Array, truth: Classes) -> list[float]:
    """In the order of `MEASURES`."""
    return [
        calibration.log_loss(probability, truth),
        calibration.reliability(probability, truth).ece,
        calibration.accuracy(probability, truth),
    ]


def bins(probability: Array, truth: Classes) -> list[list[float]]:
    """Rows, summed confidence and right answers in each bin of width 0.1, to be pooled over data."""
    confidence = probability.max(axis=1)
    right = probability.argmax(axis=1) == truth
    which = np.minimum((10 * confidence).astype(int), 9)
    return [np.bincount(which, weights=w, minlength=10).tolist() for w in (np.ones(len(truth)), confidence, right)]


def wrong_label_auroc(beliefs: Mixture, wrong: NDArray[np.bool_], nodes: Classes) -> float:
    """The chance that a wrong label is more suspicious than a right one, equals counting half."""
    found = suspicious_labels(beliefs)
    is_wrong = np.isin(found.nodes, nodes[wrong])
    pairs = found.probability[is_wrong][:, None] - found.probability[~is_wrong][None]
    return float(np.mean((pairs > 0) + (pairs == 0) / 2))
