"""Beyond the paper: does the posterior variance of a label predict how often it is wrong?

If probabilities are right, a node of label mean s is wrong with probability (1 - |s|) / 2. Nodes are sorted by
1 - s^2, cut into groups, and the share of wrong labels in each is set against that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "does the posterior variance predict the error rate?"
DATA = {
    "voting": "voting records, 5 labels",
    "moons": "two moons, 3% labeled",
    "4 9": "MNIST 4/9, 4% labeled",
    "3 8": "MNIST 3/8, 4% labeled",
    "0 6": "MNIST 0/6, 4% labeled",
    "5 7": "MNIST 5/7, 4% labeled",
}
PRIORS = {"learned": "learned prior", "paper": "the paper's prior"}


@dataclass(frozen=True)
class Config:
    """The paper's data and labels; its prior has all modes on voting and two moons, 300 on MNIST."""

    gamma: float = 0.1
    sigma: float = 0.06
    n_modes: int = 300
    edges: tuple[float, ...] = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.96, 1.0)  # of the groups, in 1 - s^2
    n_trials: int = 10
    n_steps: int = 500


FULL = Config()
QUICK = Config(n_trials=2, n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"data": data, "seed": seed} for data in DATA for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems
    from graphuq import calibration, prior

    data, modes, nodes = problems.with_labels(
        trial["data"], trial["seed"], noise=config.sigma, n_modes=config.n_modes
    )
    mu0 = prior.project(modes)  # the full prior where these are all modes
    few = modes.truncate(min(config.n_modes, modes.n_modes))
    found, r_hat = problems.probabilities(mu0, few, nodes, data.y, config, trial["seed"])
    others = np.setdiff1d(np.arange(len(data.y)), nodes)
    result: dict[str, Any] = {"data": trial["data"], "r_hat": r_hat}
    for name, probability in found.items():
        p, y = probability[others], data.y[others]
        variance = 4 * p * (1 - p)
        wrong = (p >= 0.5) != (y > 0)
        group = np.clip(np.searchsorted(config.edges, variance) - 1, 0, len(config.edges) - 2)
        sums = [
            np.bincount(group, weights=w, minlength=len(config.edges) - 1) for w in (wrong, np.minimum(p, 1 - p))
        ]
        result[name] = {
            "count": np.bincount(group, minlength=len(config.edges) - 1),
            "wrong": sums[0],
            "expected": sums[1],
            "variance_sum": np.bincount(group, weights=variance, minlength=len(config.edges) - 1),
            "auroc": calibration.error_detection_auroc(p, y),
        }
    return result


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    values: dict[str, Any] = {"worst_r_hat": worst(results), "data": {}}
    for data in DATA:
        values["data"][data] = {}
        for name in PRIORS:
            mine = [result[name] for result in results if result["data"] == data]
            sums = {
                key: np.sum([each[key] for each in mine], axis=0)
                for key in ("count", "wrong", "expected", "variance_sum")
            }
            known = [each["auroc"] for each in mine if each["auroc"] is not None]
            values["data"][data][name] = {**sums, "auroc": mean_and_error(known) if known else None}
    return values


def draw(record: Record) -> Any:
    figure, axes = style.subplots(2, 3, size=(3.8, 3))
    s = np.linspace(0, 1, 200)
    for ax, (data, title) in zip(axes.flat, DATA.items(), strict=True):
        for (name, label), color, marker in zip(PRIORS.items(), (style.GREEN, style.BLUE), "^o", strict=True):
            found = {key: np.array(value) for key, value in record.values["data"][data][name].items()}
            kept = found["count"] >= 10
            count, wrong = found["count"][kept], found["wrong"][kept]
            share = wrong / count
            error = np.sqrt(np.maximum(share * (1 - share), 1 / count) / count)
            x = found["variance_sum"][kept] / count
            ax.errorbar(
                x, share, error, color=color, marker=marker, markersize=5, capsize=2, linewidth=1, label=label
            )
        ax.plot(1 - s**2, (1 - s) / 2, "--", color=style.GRAY, linewidth=1, label="(1 - |s|) / 2, if right")
        ax.set(title=title, xlim=(-0.03, 1.03), ylim=(-0.02, 0.75))
    for ax in axes[-1]:
        ax.set_xlabel("posterior variance of the label, $1 - s_j^2$")
    for ax in axes[:, 0]:
        ax.set_ylabel("share of wrong labels")
    axes[0, 0].legend(loc="upper left", fontsize=8)
    return figure


def claims(record: Record) -> list[Claim]:
    lines = []
    for data, title in DATA.items():
        parts = []
        for name, label in PRIORS.items():
            found = record.values["data"][data][name]
            auroc = "no errors" if found["auroc"] is None else f"{found['auroc'][0]:.3f} ± {found['auroc'][1]:.3f}"
            n = sum(found["count"])
            parts.append(
                f"{label}: AUROC {auroc}, {sum(found['wrong']) / n:.1%} wrong, {sum(found['expected']) / n:.1%} expected"
            )
        what = f"{title}: variance is higher where predictions are wrong, and predicts how often they are"
        lines.append(Claim(what, "useful information (Sec. 5.2)", "; ".join(parts), None))
    return lines
