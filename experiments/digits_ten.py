"""Ten digits from 1, 2, 5 and 10 labels each: accuracy, log-loss and calibration of graphuq and of other tools.

Ours is `GraphClassifier` as it comes; the others that work on a graph see one of 10 neighbors, which is connected, as
they need. All see the same labels and are judged on the rows without one. `+ T` marks a temperature: for graphuq it
comes from the probabilities of the given labels that expectation propagation leaves out one at a time, for the others
from labels held out in up to five folds. With one label a class there is nothing to hold out.

    python -m experiments.digits_ten --jobs 16    # docs/reproduction/digits_ten.json and .png, docs/digits.md
    python -m experiments.digits_ten --page       # the picture and the page from the record
    python -m experiments.digits_ten --quick      # 2 draws of labels, to reproduction/quick
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import class_peers, command, graphlearning_peers, runner, style
from experiments.experiment import Claim, Record, Trial
from experiments.markdown import table
from graphuq import GraphClassifier, calibration
from graphuq.files import whole_file
from graphuq.graph import knn

TITLE = "ten digits from few labels, against other tools"
OURS = "graphuq"
TOLD = f"{OURS}, true shares"
MEASURES = {"accuracy": "accuracy", "log_loss": "log-loss", "ece": "ECE"}
# What is believed of the temperature beforehand: its logarithm is N(0, 0.3^2).
SPREAD = 0.3
PEER_NEIGHBORS = 10
PAGE = Path("docs/digits.md")


@dataclass(frozen=True)
class Config:
    """What is run: scikit-learn's 1,797 digits.

    Attributes:
        per_class: labels of each digit, drawn at random.
        n_draws: draws of labels.
        graphlearning: whether the package GraphLearning is among the peers.
    """

    per_class: tuple[int, ...] = (1, 2, 5, 10)
    n_draws: int = 20
    graphlearning: bool = graphlearning_peers.installed()


FULL = Config()
QUICK = Config(n_draws=2)


def trials(config: Config) -> list[Trial]:
    """Draws of labels."""
    return [{"per_class": n, "seed": seed} for seed in range(config.n_draws) for n in config.per_class]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Every tool on one draw of labels."""
    X, y = digits()
    nodes = choose(y, trial["per_class"], trial["seed"])
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    shares = np.bincount(y) / len(y)
    found = ours(trial)["scores"]
    joined = knn(X, n_neighbors=PEER_NEIGHBORS)
    peers = class_peers.peers(joined, X, shares)
    if config.graphlearning:
        peers |= graphlearning_peers.peers(joined, shares)
    for name, peer in peers.items():
        scores = peer.score(nodes, y[nodes])
        right = float(np.mean(scores[rest].argmax(axis=1) == y[rest]))
        found[name] = {"accuracy": right}
        if peer.read is not None:
            found[name] = measure(peer.read(scores)[rest], y[rest]) | found[name]
        probability = class_peers.tempered(peer, nodes, y[nodes], scores, seed=trial["seed"])
        if probability is not None:
            found[f"{name} + T"] = measure(probability[rest], y[rest])
    return {**trial, "scores": found}


def ours(trial: Trial) -> dict[str, Any]:
    """Our own answers on one draw of labels."""
    X, y = digits()
    nodes = choose(y, trial["per_class"], trial["seed"])
    given = np.full(len(y), -1)
    given[nodes] = y[nodes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        fitted = GraphClassifier().fit(X, given)
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    found: dict[str, Any] = {OURS: measure(fitted.label_distributions_[rest], y[rest])}
    if trial["per_class"] > 1:
        found[f"{OURS} + T"] = measure(left_out_temperature(fitted)[rest], y[rest])
    shares = np.bincount(y) / len(y)
    found[TOLD] = measure(calibration.match_shares(fitted.label_distributions_, shares)[rest], y[rest])
    return {**trial, "scores": found}


@lru_cache(maxsize=1)
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features and digits."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y


def choose(y: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """So many rows of each class, at random."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.choice(np.flatnonzero(y == k), n, replace=False) for k in np.unique(y)])


def left_out_temperature(fitted: GraphClassifier) -> NDArray[np.float64]:
    """Probabilities at the temperature that suits the given labels, each left out in turn."""
    model: Any = fitted.posterior_.model
    t = calibration.temperature(fitted.posterior_.left_out(), model.y, spread=SPREAD)
    return calibration.apply_temperature(fitted.label_distributions_, t)


def measure(probability: NDArray[np.float64], truth: NDArray[np.int64]) -> dict[str, float]:
    """In the order of `MEASURES`."""
    return {
        "accuracy": calibration.accuracy(probability, truth),
        "log_loss": calibration.log_loss(probability, truth),
        "ece": calibration.reliability(probability, truth).ece,
    }


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard error over draws, by number of labels, tool and measure."""
    from experiments.problems import mean_and_error

    rows = []
    for n in config.per_class:
        draws = [result["scores"] for result in results if result["per_class"] == n]
        if not draws:  # of a run cut off
            continue
        scores = {
            name: {key: mean_and_error([each[name][key] for each in draws]) for key in draws[0][name]}
            for name in draws[0]
        }
        rows.append({"per_class": n, "n_draws": len(draws), "scores": scores})
    return {"rows": rows}


def best_other(row: dict[str, Any], key: str) -> str:
    """The tool, other than ours, that does best by one measure."""
    sign = -1 if key == "accuracy" else 1
    others = {
        name: each[key][0] for name, each in row["scores"].items() if key in each and not name.startswith(OURS)
    }
    return min(others, key=lambda name: sign * others[name])


def claims(record: Record) -> list[Claim]:
    """Ours beside the best other tool, for every number of labels and measure."""
    from experiments.problems import show

    lines = []
    for row in record.values["rows"]:
        for key, word in MEASURES.items():
            best, scores = best_other(row, key), row["scores"]
            mine = [f"{show(*scores[name][key])} {name}" for name in (OURS, f"{OURS} + T", TOLD) if name in scores]
            ours = f"{', '.join(mine)}; best other {show(*scores[best][key])}, {best}"
            lines.append(
                Claim(f"ten digits, {row['per_class']} labels each: {word}", "not in the paper", ours, None)
            )
    return lines


def draw(record: Record) -> Any:
    """A panel for each measure, a line for each tool."""
    rows = record.values["rows"]
    counts = [row["per_class"] for row in rows]
    names = dict.fromkeys(name for row in rows for name in row["scores"])
    # GraphLearning's other methods answer as ours of the same name do.
    shown = [name for name in names if not name.startswith("GraphLearning") or name == graphlearning_peers.MBO]
    colors = (style.ORANGE, style.GREEN, style.VERMILION, style.SKY, style.PURPLE, style.GRAY)
    tools = [name for name in shown if not name.endswith("+ T") and not name.startswith(OURS)]
    look = {OURS: (style.BLUE, "o"), TOLD: ("black", "*")} | {
        name: (color, marker) for name, color, marker in zip(tools, colors, "s^vDXP", strict=False)
    }
    figure, axes = style.subplots(1, len(MEASURES), size=(4.2, 3.4))
    for ax, (key, word) in zip(axes, MEASURES.items(), strict=True):
        for name in shown:
            points = [(row["per_class"], *row["scores"].get(name, {}).get(key, ())) for row in rows]
            points = [point for point in points if len(point) == 3]
            if not points:
                continue
            color, marker = look[name.removesuffix(" + T")]
            line = {"color": color, "marker": marker, "markersize": 4.5, "capsize": 2, "linewidth": 1.2}
            ax.errorbar(*np.transpose(points), linestyle=":" if name.endswith("+ T") else "-", label=name, **line)
        style.log_ticks(ax, counts)
        ax.set(xlabel="labels a class", title=word)
    handles = {word: handle for ax in axes for handle, word in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=5, fontsize=8)
    return figure


def page(record: Record, folder: str) -> str:
    """The record as tables, with the best of each column in bold."""
    rows = record.values["rows"]
    counts = [row["per_class"] for row in rows]
    n_draws = sorted({row.get("n_draws", record.config["n_draws"]) for row in rows})
    parts = [
        "# Ten digits from few labels\n",
        "How accurate and how well calibrated are predictions for ten classes when only 1 to 10 rows of each class are labeled? "
        "This page compares `GraphClassifier`, used with default settings, to other methods on scikit-learn's 1,797 images of digits. "
        f"Values are means over {' to '.join(map(str, n_draws))} random draws of the labeled rows, with standard errors, "
        "measured on the rows without a label. The best value of each column is in bold.\n",
        "- The other graph methods use a graph of 10 nearest neighbors.\n"
        "- `+ T` means that the probabilities were adjusted by a temperature: for graphuq it is fitted to leave-one-out "
        "probabilities, for other methods to labels held out in up to five folds (two for GraphLearning's Poisson-MBO with true "
        "shares, because it is slow). With one label per class, there is no label to hold out.\n"
        "- `true shares` means that the method is given the true class frequencies: graphuq by `calibration.match_shares`, "
        "the threshold dynamics (MBO) as part of the method. No other method is given them.\n"
        "- Poisson learning gives scores but no probabilities, so it has no log-loss or ECE without a temperature.\n"
        "- GraphLearning's methods are comparable to those of the same name in `graphuq.baselines` "
        "(Laplace learning is called `harmonic` there).\n",
        f"![Accuracy, log-loss and calibration error by number of labels]({folder}/digits_ten.png)\n",
    ]
    tools = [name for name in dict.fromkeys(name for row in rows for name in row["scores"]) if name[-3:] != "+ T"]
    for key, word in MEASURES.items():
        # A temperature leaves the most probable class as it is.
        names = tools if key == "accuracy" else [f"{name}{mark}" for name in tools for mark in ("", " + T")]
        columns = [
            {name: row["scores"][name][key] for name in names if key in row["scores"].get(name, ())}
            for row in rows
        ]
        best = [(max if key == "accuracy" else min)(mean for mean, _ in column.values()) for column in columns]
        lines = [
            [name, *(_cell(column.get(name), top) for column, top in zip(columns, best, strict=True))]
            for name in names
            if any(name in column for column in columns)
        ]
        lines += [
            [name, *[graphlearning_peers.NOT_INSTALLED] * len(counts)]
            for name in graphlearning_peers.missing(tools)
            if key != "accuracy" or not name.endswith("+ T")
        ]
        parts.append(f"## {word}\n\n{table(['', *(f'{n} per class' for n in counts)], lines)}")
    parts.append(
        f"Made by `python -m experiments.digits_ten`. {record.level.capitalize()} run, {record.seconds / 60:.0f} core-minutes on {record.machine}, graphuq "
        f"{record.version}.\n"
    )
    return "\n".join(parts)


def _cell(value: list[float] | None, best: float) -> str:
    if value is None:
        return "–"
    mean, error = value
    return f"{'**' if mean == best else ''}{mean:.3f}{'**' if mean == best else ''} ± {error:.3f}"


def write_page(record: Record, out: Path) -> Path:
    """The picture beside the record, and the page."""
    runner.save_figure(draw(record), out / "digits_ten.png")
    target = PAGE if out == command.RECORDS else out / PAGE.name
    with whole_file(target) as part:
        part.write_text(page(record, out.name if target == PAGE else "."), encoding="utf-8")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("digits_ten", __doc__, arguments, page=write_page)


if __name__ == "__main__":
    raise SystemExit(main())
