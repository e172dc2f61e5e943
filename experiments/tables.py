"""Are the probabilities right? graphuq and other tools on data that no setting was chosen on.

Every tool sees the same labels and is judged on the rows without one: pairs of digits, which are separable; ordinary
tables, whose classes overlap; both with a tenth of the labels wrong, and with one class cut to 5%; and data of many
classes. Data and tools: table_data.py and table_peers.py.

    python -m experiments.tables --out docs/reproduction                          # with the packages of the tables
    python -m experiments.tables --data FILE --jobs 16 --out docs/reproduction    # with a file made of them
    python -m experiments.calibration_page                                        # docs/calibration.md from the record
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import runner, style, table_data, table_peers
from experiments.experiment import Claim, Record, Trial
from experiments.spectra import cached
from graphuq import GraphClassifier, calibration, laplacian, spectrum
from graphuq.feature_piece import FeaturePiece
from graphuq.graph import Graph, knn
from graphuq.learning import learn
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
# Fewer rows say nothing of a frequency.
FEWEST_SHOWN = 30
# Log-losses that differ by less count as the same.
LEAST_DIFFERENCE = 0.01
RECORDS, SCRATCH = Path("docs/reproduction"), Path("reproduction")
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
        n_draws: draws of labels of ordinary tables, all right; `n_draws_wrong` of them with wrong ones, and
            `n_draws_others` of all else.
    """

    tables: tuple[str, ...] = table_data.REPORTING
    pairs: tuple[str, ...] = ("27", "28", "35", "56", "79", "89")
    rare_tables: tuple[str, ...] = ("banana", "cells", "k401k", "magic", "rotterdam", "wa_churn")
    many: tuple[str, ...] = (*table_data.MANY, "mnist")
    n_labels: tuple[int, ...] = (10, 20, 50, 200)
    per_class: tuple[int, ...] = (1, 2, 5, 10)
    n_draws: int = 10
    n_draws_wrong: int = 4
    n_draws_others: int = 6


FULL = Config()
QUICK = Config(
    tables=("banana", "pima", "wa_churn"),
    pairs=("35",),
    rare_tables=("magic",),
    many=("iris", "vowel"),
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
        ("many", config.many, config.per_class, config.n_draws_others),
        ("separable", pairs, config.n_labels, config.n_draws_others),
        ("separable, wrong", pairs, few, config.n_draws_others),
        ("tables", config.tables, config.n_labels, config.n_draws),
        ("tables, wrong", config.tables, few, config.n_draws_wrong),
        ("rare", [f"{name} rare" for name in pairs], few, config.n_draws_others),
        ("rare tables", [f"{name} rare" for name in config.rare_tables], few, config.n_draws_others),
    ]
    found = [
        {"group": group, "data": data, "n_labels": n, "seed": seed}
        for group, names, counts, n_draws in plan
        for seed in range(n_draws)
        for n in counts
        for data in names
        if n < 200 or data not in SMALL
    ]
    # The longest first of each draw: many classes, and many labels.
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
    piece = FeaturePiece.of(X)
    assert piece is not None
    return Prepared(
        y=y,
        features=piece.columns(X),
        spectrum=cached(key, compute),
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


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over draws with their standard errors, for every data set and over those of a group; pooled bins.

    `scores` of a tool are pairs of mean and error in the order of `MEASURES`; `beyond_shares` is its log-loss less
    that of the class shares and `ours_beyond` is ours less its, both draw by draw.
    """
    by_data = _grouped(results, "group", "data", "n_labels")
    cells = [_cell(draws) for draws in by_data]
    pooled: dict[str, Any] = {}
    for result in results:
        mine = pooled.setdefault(result["group"], {}).setdefault(str(result["n_labels"]), {})
        for name, each in result["bins"].items():
            mine[name] = np.round(np.add(mine.get(name, 0.0), each), 1)
    groups = [_group(some) for some in _grouped(cells, "group", "n_labels")]
    kept = [{key: value for key, value in cell.items() if key != "ours_beyond"} for cell in cells]
    return {"cells": kept, "groups": groups, "bins": pooled}


def _grouped(items: Iterable[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in items:
        found.setdefault(tuple(item[key] for key in keys), []).append(item)
    return list(found.values())


def _cell(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """One data set and number of labels."""
    scores = {name: np.array([draw["scores"][name] for draw in draws]) for name in draws[0]["scores"]}
    ours, shares = scores[OURS][:, 0], scores[table_peers.SHARES][:, 0]
    aurocs = [draw["wrong_label_auroc"] for draw in draws if draw["wrong_label_auroc"] is not None]
    return {
        **{key: draws[0][key] for key in ("group", "data", "n_labels")},
        "n_draws": len(draws),
        "scores": {name: [mean_and_error(column) for column in each.T] for name, each in scores.items()},
        "beyond_shares": {name: mean_and_error(each[:, 0] - shares) for name, each in scores.items()},
        "ours_beyond": {name: mean_and_error(ours - each[:, 0]) for name, each in scores.items()},
        "wrong_label_auroc": mean_and_error(aurocs) if aurocs else None,
    }


def _group(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over data sets, with the error that comes from the draws of labels; how often ours is better or worse."""
    aurocs = [cell["wrong_label_auroc"] for cell in cells if cell["wrong_label_auroc"]]
    scores, beyond = {}, {}
    for name in cells[0]["scores"]:
        each = [cell["scores"][name] for cell in cells]
        scores[name] = [_mean_of(list(pairs)) for pairs in zip(*each, strict=True)]
        beyond[name] = _mean_of([cell["ours_beyond"][name] for cell in cells])
    return {
        **{key: cells[0][key] for key in ("group", "n_labels")},
        "n_data": len(cells),
        "scores": scores,
        "ours_beyond": beyond,
        "ours_better": {name: _count(cells, name, -1) for name in scores},
        "ours_worse": {name: _count(cells, name, 1) for name in scores},
        "wrong_label_auroc": _mean_of(aurocs) if aurocs else None,
    }


def _count(cells: list[dict[str, Any]], name: str, sign: int) -> int:
    """In how many data sets our log-loss is above (1) or below (-1) that of a tool by 0.01 and a standard error."""
    return sum(exceeds([sign * cell["ours_beyond"][name][0], cell["ours_beyond"][name][1]]) for cell in cells)


def mean_and_error(values: Any) -> list[float | None]:
    """Mean over draws and its standard error, which one draw does not have."""
    x = np.asarray(values, dtype=float)
    return [_short(x.mean()), _short(x.std(ddof=1) / np.sqrt(x.size), 2) if x.size > 1 else None]


def _mean_of(pairs: list[list[float | None]]) -> list[float | None]:
    """The mean of means, and its error from theirs."""
    means, errors = zip(*pairs, strict=True)
    error = None if None in errors else _short(np.sqrt(np.square(errors).sum()) / len(errors), 2)
    return [_short(np.mean(means)), error]


def _short(value: Any, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")


def exceeds(difference: Sequence[float | None]) -> bool:
    """Whether a difference of log-losses is more than 0.01 and more than its standard error."""
    mean, error = difference
    return mean is not None and mean > max(LEAST_DIFFERENCE, error or 0.0)


def worse_than_shares(cells: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The cells in which a tool's log-loss exceeds that of the class shares."""
    return [cell for cell in cells if exceeds(cell["beyond_shares"][name])]


def best_other(scores: dict[str, list[list[float]]], measure: int) -> str:
    """The tool, other than ours, that does best by one of `MEASURES`."""
    sign = -1 if list(MEASURES)[measure] == "accuracy" else 1
    return min((name for name in scores if name != OURS), key=lambda name: sign * scores[name][measure][0])


def claims(record: Record) -> list[Claim]:
    """Ours beside the best other tool by log-loss, for every group and number of labels."""
    found = []
    for group in record.values["groups"]:
        texts = []
        for name in (OURS, best_other(group["scores"], 0)):
            pairs = zip(MEASURES.values(), group["scores"][name], strict=True)
            texts.append(f"{name}: " + ", ".join(f"{word} {value[0]:.3f}" for word, value in pairs))
        words = "labels a class" if group["group"] == "many" else "labels"
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
        n_labels = min(counts, key=lambda n: abs(int(n) - (5 if group == "many" else 50)))
        for name, color, marker in zip(DRAWN, colors, "os^Dv", strict=True):
            rows, confidence, right = np.array(counts[n_labels][name])
            shown = rows >= FEWEST_SHOWN
            line = {"color": color, "marker": marker, "markersize": 4, "linewidth": 1.2, "label": name}
            ax.plot(confidence[shown] / rows[shown], right[shown] / rows[shown], **line)
        low = 0.0 if group == "many" else 0.5
        ax.plot([low, 1], [low, 1], "--", color=style.GRAY, linewidth=0.8)
        words = f"{n_labels} labels{' a class' if group == 'many' else ''}"
        ax.set(xlabel="confidence", ylabel="share right", ylim=(min(low, 0.35), 1.01))
        ax.set_title(f"{GROUPS[group]},\n{words}", fontsize=8)
    for ax in axes.flat[len(groups) :]:
        ax.axis("off")
    axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=8)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not done yet; write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a file made by python -m experiments.table_data")
    parser.add_argument("--quick", action="store_true", help="one draw of labels on a few of the data")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more trials after so long")
    parser.add_argument("--out", type=Path, help=f"for the record (default: {RECORDS}, or {SCRATCH}/quick)")
    parser.add_argument("--work", type=Path, default=SCRATCH / "work", help="for finished trials")
    asked = parser.parse_args(arguments)
    if asked.data is not None:
        os.environ[table_data.FILE] = str(asked.data.absolute())
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing here would gain from an accelerator
    (outcome,) = runner.reproduce(
        ["tables"],
        level="quick" if asked.quick else "full",
        jobs=asked.jobs,
        out=asked.out or (SCRATCH / "quick" if asked.quick else RECORDS),
        work=asked.work,
        seconds=asked.seconds,
        figures=False,  # the page draws it, and needs a package that this does not
    )
    for claim in outcome.claims:
        print(f"{claim.what}\n    {claim.ours}")
    print(*outcome.errors[:3], outcome.missing, sep="\n")
    return 0 if outcome.record is not None else 1


if __name__ == "__main__":
    raise SystemExit(main())
