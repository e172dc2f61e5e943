"""Beyond the paper: projection, approximation and full posterior against the number of modes ell (Sec. 5.3, 6).

How far are the label means from the full posterior's, and which of them classify best and are best calibrated?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "projection and approximation against the number of modes"
DATA = {"voting": "voting records, N = 435", "moons": "two moons, N = 2,000", "4 9": "MNIST 4/9, N = 4,000"}
METHODS = {"projection": (style.BLUE, "o"), "approximation": (style.VERMILION, "s")}
MEASURES = {"distance": r"mean $|s_j - s_j^*|$", "accuracy": "share right", "ece": "ECE"}


@dataclass(frozen=True)
class Config:
    """Probit with the paper's gamma; labels as in its Sec. 5.1."""

    n_modes: tuple[int, ...] = (5, 10, 20, 50, 100, 150, 300)
    data: tuple[str, ...] = ("voting", "moons", "4 9")
    gamma: float = 0.1
    sigma: float = 0.06
    n_trials: int = 5
    n_steps: int = 500


FULL = Config()
QUICK = Config(n_modes=(50, 150), data=("voting", "moons"), n_trials=1, n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"data": data, "seed": seed} for data in reversed(config.data) for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """All numbers of modes on one graph and draw of labels."""
    from experiments import problems
    from graphuq import prior

    data, modes, nodes = problems.with_labels(trial["data"], trial["seed"], noise=config.sigma, n_modes=None)
    others = np.setdiff1d(np.arange(len(data.y)), nodes)
    model = problems.LIKELIHOODS["probit"](nodes, data.y[nodes], gamma=config.gamma)
    r_hats: list[dict[str, float]] = []

    def means(mu0: Any, run_seed: int) -> Any:
        posterior = problems.draw(mu0, model, n_steps=config.n_steps, seed=run_seed)
        r_hats.append({"r_hat": posterior.diagnostics().worst_r_hat})
        return posterior.label_mean()

    def measured(s: Any) -> dict[str, float]:
        scores = problems.scores((1 + s[others]) / 2, data.y[others])
        return {"distance": np.abs(s - full).mean(), **scores}

    full = means(prior.full(modes), 0)
    found: dict[str, Any] = {"data": trial["data"], "full": measured(means(prior.full(modes), 1))}
    for name, make in (("projection", prior.project), ("approximation", prior.approximate)):
        found[name] = [measured(means(make(modes, n_modes=n), 2)) for n in config.n_modes]
    return {**found, "r_hat": problems.worst(r_hats)}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    values: dict[str, Any] = {"worst_r_hat": worst(results), "data": {}}
    for data in config.data:
        mine = [result for result in results if result["data"] == data]
        values["data"][data] = {
            measure: {
                **{m: mean_and_error([[each[measure] for each in r[m]] for r in mine]) for m in METHODS},
                "full": mean_and_error([r["full"][measure] for r in mine]),
            }
            for measure in (*MEASURES, "variance")
        }
    return values


def draw(record: Record) -> Any:
    data = record.config["data"]
    figure, axes = style.subplots(3, len(data), size=(4, 2.6), sharex=True)
    for column, name in enumerate(data):
        for ax, (measure, label) in zip(axes[:, column], MEASURES.items(), strict=True):
            found = record.values["data"][name][measure]
            for method, (color, marker) in METHODS.items():
                settings = {"color": color, "marker": marker, "markersize": 5, "capsize": 2.5, "label": method}
                ax.errorbar(record.config["n_modes"], *found[method], **settings)
            note = "full, another seed" if measure == "distance" else "full"
            ax.axhline(found["full"][0], color=style.GRAY, linestyle="--", linewidth=1, label=note)
            style.log_ticks(ax, record.config["n_modes"])
            if column == 0:
                ax.set_ylabel(label)
        axes[0, column].set_title(DATA[name])
        axes[-1, column].set_xlabel(r"number of modes $\ell$")
    for ax in axes[:2, 0]:
        ax.legend(fontsize=8)
    return figure


def claims(record: Record) -> list[Claim]:
    lines = []
    for name in record.config["data"]:
        found = record.values["data"][name]
        distance = found["distance"]
        closer = np.array(distance["approximation"][0]) < np.array(distance["projection"][0])
        counts = [n for n, good in zip(record.config["n_modes"], closer, strict=True) if good]
        ours = (
            f"closer at {len(counts)} of {len(closer)} numbers of modes ({', '.join(map(str, counts)) or 'none'})"
        )
        what = f"{DATA[name]}: the approximation is closer to the full posterior than the projection"
        lines.append(Claim(what, "conjectured (Sec. 5.3)", ours, None))
        best = {m: int(np.argmin(found["ece"][m][0])) for m in METHODS}
        parts = [
            f"{m}: {found['ece'][m][0][i]:.3f} at {record.config['n_modes'][i]} modes, {found['accuracy'][m][0][i]:.1%} right"
            for m, i in best.items()
        ]
        parts.append(f"full: {found['ece']['full'][0]:.3f}, {found['accuracy']['full'][0]:.1%} right")
        lines.append(Claim(f"{DATA[name]}: best calibration error over ell", "-", "; ".join(parts), None))
    return lines
