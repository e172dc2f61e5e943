"""Fig. 6: Var(l) against the share of labeled nodes and against the label noise gamma; two moons and MNIST 4/9.

Two moons uses all 2,000 modes, MNIST the projection on 300; the paper does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "Var(l) against the share of labels and against gamma"
MODELS = ("probit", "level_set")
DATA = {"moons": "two moons, all modes", "mnist": "MNIST 4/9, 300 modes"}


@dataclass(frozen=True)
class Config:
    """The paper's values; its text does not list the shares and gammas, these are ours."""

    shares: tuple[float, ...] = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
    gammas: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    gamma: float = 0.1
    share_labeled: float = 0.04
    sigma: float = 0.06
    n_modes: int = 300
    n_trials: int = 20
    n_steps: int = 500


FULL = Config()
QUICK = Config(shares=(0.02, 0.04), gammas=(0.05, 0.2, 1.0), n_trials=2, n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"data": data, "seed": seed} for data in DATA for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems
    from graphuq import prior

    seed = trial["seed"]
    if trial["data"] == "moons":  # a new realization for each trial; MNIST is fixed
        data, modes = problems.two_moons(config.sigma, seed)
        mu0 = prior.full(modes)
    else:
        data, modes = problems.mnist(4, 9, config.n_modes)
        mu0 = prior.project(modes)

    def at(name: str, share: float, gamma: float) -> dict[str, float]:
        nodes = problems.choose(data.y, share, seed)
        model = problems.LIKELIHOODS[name](nodes, data.y[nodes], gamma=gamma)
        return problems.measured(problems.draw(mu0, model, n_steps=config.n_steps, seed=seed))

    return {
        "data": trial["data"],
        "share": {name: [at(name, share, config.gamma) for share in config.shares] for name in MODELS},
        "gamma": {name: [at(name, config.share_labeled, gamma) for gamma in config.gammas] for name in MODELS},
    }


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    curves: dict[str, Any] = {}
    everything: list[dict[str, Any]] = []
    for data in DATA:
        for axis in ("share", "gamma"):
            for name in MODELS:
                found = [result[axis][name] for result in results if result["data"] == data]
                mean, error = mean_and_error([[each["variance"] for each in row] for row in found])
                curves[f"{data} {axis} {name}"] = {"mean": mean, "error": error}
                everything += [each for row in found for each in row]
    return {"curves": curves, "worst_r_hat": worst(everything)}


def draw(record: Record) -> Any:
    figure, axes = style.subplots(2, 2)
    for column, (data, title) in enumerate(DATA.items()):
        for ax, axis in zip(axes[:, column], ("share", "gamma"), strict=True):
            x = np.array(record.config["shares"]) * 100 if axis == "share" else record.config["gammas"]
            for name in MODELS:
                found = record.values["curves"][f"{data} {axis} {name}"]
                style.curve(ax, x, found["mean"], found["error"], name)
            ax.set_xlabel("labeled nodes, %" if axis == "share" else r"label noise $\gamma$")
            ax.set_ylabel("Var(l)")
            ax.legend()
        axes[1, column].set_xscale("log")
        axes[0, column].set_title(title)
    return figure


def claims(record: Record) -> list[Claim]:
    from experiments.problems import rises, show

    lines = []
    for data, title in DATA.items():
        for axis, way in (("share", "falls with the share of labels"), ("gamma", "rises with gamma")):
            for name in MODELS:
                found = record.values["curves"][f"{data} {axis} {name}"]
                sign = -1 if axis == "share" else 1
                good = rises(sign * np.array(found["mean"]), found["error"])
                ends = [show(found["mean"][i], found["error"][i]) for i in (0, -1)]
                what = f"{title}, {style.NAMES[name]}: Var(l) {way}"
                lines.append(Claim(what, way.split()[0], f"from {ends[0]} to {ends[1]}", good))
        one, other = (record.values["curves"][f"{data} gamma {name}"]["mean"][0] for name in MODELS)
        what = f"{title}: the two models agree at small gamma"
        ours = f"{one:.4f} and {other:.4f} at gamma = {record.config['gammas'][0]}"
        lines.append(Claim(what, "similar answers", ours, abs(one - other) < 0.03 * one))
    return lines
