"""Beyond the paper: Table 1 and Fig. 6 again under a learned prior, with calibration beside the variance.

A small posterior variance is worth nothing if the answers are wrong more often than it says. So beside Var(l) stand
the log-loss and the expected calibration error (ECE) of the probabilities at unlabeled nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "Table 1 and Fig. 6 under a learned prior: variance and calibration"
PRIORS = {"learned": "learned", "paper": "the paper's"}
COLORS = {"learned": style.GREEN, "paper": style.BLUE}
MEASURES = {"variance": "Var(l)", "log_loss": "log-loss", "ece": "ECE"}


@dataclass(frozen=True)
class Config:
    """The paper's pairs and shares; its prior has 300 modes on MNIST and all 2,000 on two moons."""

    pairs: tuple[tuple[int, int], ...] = ((4, 9), (3, 8), (0, 6), (5, 7))
    share_labeled: float = 0.04
    shares: tuple[float, ...] = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
    gamma: float = 0.1
    sigma: float = 0.06
    n_modes: int = 300
    n_trials: int = 10
    n_steps: int = 500


FULL = Config()
QUICK = Config(shares=(0.02, 0.04), n_trials=2, n_steps=200)


def trials(config: Config) -> list[Trial]:
    pairs = [list(pair) for pair in config.pairs if pair != (4, 9)]
    table = [
        {"data": pair, "shares": [config.share_labeled], "seed": s}
        for pair in pairs
        for s in range(config.n_trials)
    ]
    curves = [
        {"data": data, "shares": list(config.shares), "seed": seed}
        for data in ([4, 9], "moons")
        for seed in range(config.n_trials)
    ]
    return curves + table


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """Both priors on the same graph and labels, for every share."""
    from experiments import problems
    from graphuq import prior

    if trial["data"] == "moons":
        data, modes = problems.two_moons(config.sigma, trial["seed"])
        mu0 = prior.full(modes)
    else:
        first, second = trial["data"]
        data, modes = problems.mnist(first, second, config.n_modes)
        mu0 = prior.project(modes)
    found = []
    for share in trial["shares"]:
        nodes = problems.choose(data.y, share, trial["seed"])
        both = problems.probabilities(mu0, modes.truncate(config.n_modes), nodes, data.y, config, trial["seed"])
        others = np.setdiff1d(np.arange(len(data.y)), nodes)
        scores = {name: problems.scores(p[others], data.y[others]) for name, p in both[0].items()}
        found.append({"share": share, **scores, "r_hat": both[1]})
    return {"data": trial["data"], "found": found}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    cells = []
    for data in [list(pair) for pair in config.pairs] + ["moons"]:
        runs = [result["found"] for result in results if result["data"] == data]
        for i, first in enumerate(runs[0]):
            for name in PRIORS:
                numbers = {
                    key: mean_and_error([run[i][name][key] for run in runs]) for key in (*MEASURES, "accuracy")
                }
                cells.append({"data": data, "share": first["share"], "prior": name, **numbers})
    return {
        "cells": cells,
        "worst_r_hat": worst(each for result in results for each in result["found"]),
    }


def cell(record: Record, data: Any, share: float, prior: str) -> dict[str, Any]:
    """The numbers of one data set, share and prior."""
    wanted = (data, share, prior)
    return next(c for c in record.values["cells"] if (c["data"], c["share"], c["prior"]) == wanted)


def draw(record: Record) -> Any:
    figure, axes = style.subplots(3, 3, size=(3.9, 2.5))
    config = record.config
    for row, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for (name, title), marker in zip(PRIORS.items(), "^o", strict=True):
            settings = {"color": COLORS[name], "marker": marker, "capsize": 2.5, "markersize": 5, "label": title}
            found = [cell(record, pair, config["share_labeled"], name)[measure] for pair in config["pairs"]]
            row[0].errorbar(range(len(found)), *np.transpose(found), linestyle="none", **settings)
            for ax, data in zip(row[1:], ([4, 9], "moons"), strict=True):
                found = [cell(record, data, share, name)[measure] for share in config["shares"]]
                ax.errorbar(100 * np.array(config["shares"]), *np.transpose(found), **settings)
        row[0].set_ylabel(label)
        row[0].set_xticks(range(len(config["pairs"])), [str(tuple(pair)) for pair in config["pairs"]])
        for ax in row:
            ax.set_ylim(bottom=0)
    for ax, title in zip(axes[0], ("pairs of digits, 4% labeled", "MNIST 4/9", "two moons"), strict=True):
        ax.set_title(title)
    for ax in axes[-1, 1:]:
        ax.set_xlabel("labeled nodes, %")
    axes[-1, 0].set_xlabel("pair of digits")
    axes[0, 1].legend(title="prior")
    return figure


def claims(record: Record) -> list[Claim]:
    from experiments.problems import show

    lines = []
    share = record.config["share_labeled"]
    for data in [*record.config["pairs"], "moons"]:
        learned, paper = (cell(record, data, share, name) for name in PRIORS)
        title = "two moons" if data == "moons" else f"MNIST {tuple(data)}"
        for measure, label in MEASURES.items():
            ours = (
                f"{show(*learned[measure])} with the learned prior, {show(*paper[measure])} with the paper's prior"
            )
            lines.append(Claim(f"{title}, {share:.0%} labeled: {label}", "-", ours, None))
    return lines
