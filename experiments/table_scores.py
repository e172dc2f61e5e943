"""Probabilities and the truth in; their scores, and over draws of labels and data sets means with errors, out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table_peers import SHARES
from graphuq import calibration
from graphuq.posterior import Mixture
from graphuq.posterior.left_out import suspicious_labels

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

OURS = "graphuq"
MEASURES = {"log_loss": "log-loss", "ece": "ECE", "accuracy": "accuracy"}
# Log-losses that differ by less count as the same.
LEAST_DIFFERENCE = 0.01
# Digits of the record: draws differ in the second or third.
DIGITS = 4


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


def summarized(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over draws with their standard errors, for every data set and over those of a group; pooled bins.

    `scores` of a tool are pairs of mean and error in the order of `MEASURES`; `beyond_shares` is its log-loss less
    that of the class shares and `ours_beyond` is ours less its, both draw by draw.
    """
    by_data = grouped(results, "group", "data", "n_labels")
    cells = [_cell(draws) for draws in by_data]
    pooled: dict[str, Any] = {}
    for result in results:
        mine = pooled.setdefault(result["group"], {}).setdefault(str(result["n_labels"]), {})
        for name, each in result["bins"].items():
            mine[name] = np.round(np.add(mine.get(name, 0.0), each), 1)
    groups = [group_of(some) for some in grouped(cells, "group", "n_labels")]
    kept = [{key: value for key, value in cell.items() if key != "ours_beyond"} for cell in cells]
    return {"cells": kept, "groups": groups, "bins": pooled}


def grouped(items: Iterable[dict[str, Any]], *keys: str) -> list[list[dict[str, Any]]]:
    """Items that agree in some keys, in the order in which they come."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in items:
        found.setdefault(tuple(item[key] for key in keys), []).append(item)
    return list(found.values())


def _cell(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """One data set and number of labels."""
    scores = {name: np.array([draw["scores"][name] for draw in draws]) for name in draws[0]["scores"]}
    ours, shares = scores[OURS][:, 0], scores[SHARES][:, 0]
    aurocs = [draw["wrong_label_auroc"] for draw in draws if draw["wrong_label_auroc"] is not None]
    return {
        **{key: draws[0][key] for key in ("group", "data", "n_labels")},
        "n_draws": len(draws),
        "scores": {name: [mean_and_error(column) for column in each.T] for name, each in scores.items()},
        "beyond_shares": {name: mean_and_error(each[:, 0] - shares) for name, each in scores.items()},
        "ours_beyond": {name: mean_and_error(ours - each[:, 0]) for name, each in scores.items()},
        "wrong_label_auroc": mean_and_error(aurocs) if aurocs else None,
    }


def group_of(cells: list[dict[str, Any]]) -> dict[str, Any]:
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
