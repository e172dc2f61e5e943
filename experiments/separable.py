"""Did probabilities on separable data get worse? Every row of the earlier page on calibration, then and now.

The same data and draws of labels as in calibration.py, whose record has the earlier numbers: the prior of the graph
alone, on a graph made for each data set, and the sign of u. That is run again here, so that differences are taken
draw by draw, beside what `GraphClassifier` as it comes answers today: the probability of the label. What changed in
between is taken one at a time, so that a row that got worse says by what.

    python -m experiments.separable --jobs 16 --out docs/reproduction    # then python -m experiments.calibration_page
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from experiments import calibration, command, problems, tables
from experiments.experiment import Claim, Record, Trial
from experiments.hyperprior import choose_labels, load, rows
from experiments.spectra import cached
from experiments.table_scores import MEASURES, grouped, mean_and_error, measure
from graphuq.learning import learn
from graphuq.models import Probit
from graphuq.spectrum import Spectrum

TITLE = "separable data: the rows of the earlier page on calibration, then and now"
N_MODES = calibration.FULL.n_modes
# What each changes to the one before it.
STEPS = {
    "then": "the method of then",
    "graph": "the default graph instead of one chosen for each data set",
    "prior": "features in addition to the graph, and labels that may be wrong",
    "now": "the probability of the label instead of that of the sign of u",
}


@dataclass(frozen=True)
class Config:
    """What is run: the rows of calibration.py."""

    data: tuple[str, ...] = calibration.FULL.data
    n_labels: tuple[int, ...] = calibration.FULL.n_labels
    flipped: tuple[float, ...] = calibration.FULL.flipped
    n_draws: int = calibration.FULL.n_draws


FULL = Config()
QUICK = Config(data=("voting", "cancer"), n_labels=(10,), n_draws=2)


def trials(config: Config) -> list[Trial]:
    """Draws of labels, all rows of a draw before the next."""
    return [
        {"data": data, "n_labels": n_labels, "flipped": flipped, "seed": seed}
        for seed in range(config.n_draws)
        for n_labels in config.n_labels
        for flipped in config.flipped
        for data in config.data
    ]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Then, now, and the steps between them on one draw of labels."""
    now, modes = prepare(trial["data"])
    y = now.y
    nodes, labels = choose_labels(2 * y - 1, trial["n_labels"], trial["flipped"], trial["seed"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of labels that decide little, which is the point
        then, graph = (
            learn(each, Probit(nodes, labels), hyperprior=problems.GRAPH_ALONE).posterior
            for each in (modes, now.spectrum)
        )
    prior, probability = tables.ours(now, nodes, (labels > 0).astype(np.int64))
    signs = {"then": then, "graph": graph, "prior": prior}
    found = {**{name: each.classes(noise=False).probability for name, each in signs.items()}, "now": probability}
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    return {**trial, **{name: measure(p[rest], y[rest]) for name, p in found.items()}}


@lru_cache(maxsize=16)
def prepare(data: str) -> tuple[tables.Prepared, Spectrum]:
    """What `GraphClassifier` computes before it sees a label, and the modes of the earlier graph."""
    X, y = rows(data)
    earlier = cached(f"separable {data} {N_MODES}", lambda: load(data, N_MODES)[0])
    return tables.prepared(X, (y > 0).astype(np.int64)), earlier


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """For each row the means of all steps, in the order of `MEASURES`, and now less then, draw by draw."""
    found = []
    for draws in grouped(results, "data", "n_labels", "flipped"):
        columns = {name: np.array([draw[name] for draw in draws]) for name in STEPS}
        columns["difference"] = columns["now"] - columns["then"]
        found.append(
            {
                **{key: draws[0][key] for key in ("data", "n_labels", "flipped")},
                "n_draws": len(draws),
                **{name: [mean_and_error(column) for column in each.T] for name, each in columns.items()},
            }
        )
    return {"rows": found}


def claims(record: Record) -> list[Claim]:
    """The change of the log-loss in every row."""
    return [
        Claim(
            f"{row_name(row)}: log-loss",
            "not in the paper",
            f"{row['then'][0][0]:.3f} then, {row['now'][0][0]:.3f} now; {row['difference'][0]}",
            None,
        )
        for row in record.values["rows"]
    ]


def row_name(row: dict[str, Any]) -> str:
    """A row in words."""
    wrong = f", {row['flipped']:.0%} wrong" if row["flipped"] else ""
    return f"{calibration.NAMES[row['data']]}, {row['n_labels']} labels{wrong}"


def draw(record: Record) -> Any:
    """Then against now, a point for each row and measure."""
    from experiments import style

    figure, axes = style.subplots(1, len(MEASURES), size=(3.4, 3.2))
    for k, (ax, word) in enumerate(zip(axes, MEASURES.values(), strict=True)):
        then, now = (np.array([row[name][k][0] for row in record.values["rows"]]) for name in ("then", "now"))
        ax.plot(then, now, "o", color=style.BLUE, markersize=3)
        ends = [min(then.min(), now.min()), max(then.max(), now.max())]
        ax.plot(ends, ends, "--", color=style.GRAY, linewidth=0.8)
        ax.set(xlabel="then", ylabel="now", title=word)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return command.main("separable", __doc__, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
