"""Fig. 5: the posterior variance of the labels, Var(l), against the noise of the features; two moons.

The paper does not say how many modes it used. Shown are all 2,000, and the 150 of its Fig. 9 on the same data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "Var(l) against feature noise, two moons"
MODELS = ("probit", "level_set")


@dataclass(frozen=True)
class Config:
    """The paper's values; 8 chains of `n_steps` draws that are nearly independent."""

    sigmas: tuple[float, ...] = tuple(round(0.02 + 0.01 * i, 2) for i in range(11))
    share_labeled: float = 0.03
    gamma: float = 0.1
    n_modes: tuple[int, ...] = (2000, 150)
    n_trials: int = 20
    n_steps: int = 500


FULL = Config()
QUICK = Config(sigmas=(0.02, 0.05, 0.08, 0.12), n_trials=2, n_steps=200)


def trials(config: Config) -> list[Trial]:
    return [{"sigma": sigma, "seed": seed} for seed in range(config.n_trials) for sigma in config.sigmas]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems
    from graphuq import prior

    moons, modes = problems.two_moons(trial["sigma"], trial["seed"])
    nodes = problems.choose(moons.y, config.share_labeled, trial["seed"], of_each_class=False)
    found: dict[str, Any] = {}
    for n_modes in config.n_modes:
        mu0 = prior.project(modes, n_modes=n_modes)  # the full prior where these are all modes
        for name in MODELS:
            model = problems.LIKELIHOODS[name](nodes, moons.y[nodes], gamma=config.gamma)
            posterior = problems.draw(mu0, model, n_steps=config.n_steps, seed=trial["seed"])
            found[f"{name} {n_modes}"] = problems.measured(posterior)
    return found


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import mean_and_error, worst

    curves = {}
    for key in results[0]:
        variances = np.reshape([result[key]["variance"] for result in results], (config.n_trials, -1))
        mean, error = mean_and_error(variances)
        curves[key] = {"mean": mean, "error": error}
    return {
        "curves": curves,
        "worst_r_hat": worst(each for result in results for each in result.values()),
    }


def draw(record: Record) -> Any:
    figure, axes = style.subplots(1, 2)
    sigmas = record.config["sigmas"]
    for ax, n_modes in zip(axes, record.config["n_modes"], strict=True):
        for name in MODELS:
            found = record.values["curves"][f"{name} {n_modes}"]
            style.curve(ax, sigmas, found["mean"], found["error"], name)
        ax.set(xlabel=r"feature noise $\sigma$", title=f"{n_modes:,} modes")
        ax.legend()
    axes[0].set_ylabel("mean posterior variance Var(l)")
    return figure


def claims(record: Record) -> list[Claim]:
    from experiments.problems import rises, show

    lines = []
    curves = record.values["curves"]
    for n_modes in record.config["n_modes"]:
        for name in MODELS:
            found = curves[f"{name} {n_modes}"]
            ends = [show(found["mean"][i], found["error"][i]) for i in (0, -1)]
            good = rises(found["mean"], found["error"])
            what = f"{style.NAMES[name]}, {n_modes:,} modes: Var(l) rises with sigma"
            lines.append(Claim(what, "rises", f"from {ends[0]} to {ends[1]}", good))
        one, other = (np.array(curves[f"{name} {n_modes}"]["mean"]) for name in MODELS)
        gap = float(np.max(np.abs(one - other) / np.maximum(one, other)))
        what = f"the two models agree, {n_modes:,} modes"
        lines.append(Claim(what, "similar values", f"at most {gap:.0%} apart", gap < 0.15))
    return lines
