"""Sec. 5.3: how far the label means by spectral projection and by approximation are from the full posterior's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "projection and approximation against the full posterior, voting records"
PAPER = {"projection": 0.1577, "approximation": 0.0261}
# Over draws of the five labels, ours should lie in these.
RANGES = {"projection": (0.13, 0.18), "approximation": (0.0, 0.03)}


@dataclass(frozen=True)
class Config:
    """The paper's values; which five members are labeled it does not say, so several draws of them are made."""

    n_modes: int = 150
    gamma: float = 0.1
    n_democrats: int = 3
    n_republicans: int = 2
    n_trials: int = 20
    n_steps: int = 2000


FULL = Config()
QUICK = Config(n_trials=4, n_steps=1000)


def trials(config: Config) -> list[Trial]:
    return [{"seed": seed} for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems
    from graphuq import datasets, prior

    votes, modes = problems.voting()
    nodes, y = datasets.few_labels(votes.y, {1: config.n_democrats, -1: config.n_republicans}, seed=trial["seed"])
    priors = {
        "full": prior.full(modes),
        "projection": prior.project(modes, n_modes=config.n_modes),
        "approximation": prior.approximate(modes, n_modes=config.n_modes),
        "full again": prior.full(modes),
    }
    means, r_hats = {}, []
    for i, (name, mu0) in enumerate(priors.items()):
        model = problems.LIKELIHOODS["probit"](nodes, y, gamma=config.gamma)
        posterior = problems.draw(mu0, model, n_steps=config.n_steps, seed=10 * trial["seed"] + i)
        means[name] = posterior.label_mean()
        r_hats.append(posterior.diagnostics().worst_r_hat)
    distances = {name: np.abs(s - means["full"]).mean() for name, s in means.items() if name != "full"}
    return {"r_hat": max(r_hats), "distances": distances}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    from experiments.problems import worst

    distances = {name: [result["distances"][name] for result in results] for name in results[0]["distances"]}
    return {"distances": distances, "worst_r_hat": worst(results)}


def draw(record: Record) -> Any:
    figure, ax = style.subplots(size=(5.2, 3.4))
    distances = record.values["distances"]
    labels = {"projection": "projection", "approximation": "approximation", "full again": "full, other seed"}
    for i, (name, color) in enumerate(zip(labels, (style.BLUE, style.VERMILION, style.GRAY), strict=True)):
        spread = np.linspace(-0.2, 0.2, len(distances[name]))
        ax.plot(i + spread, distances[name], "o", color=color, markersize=4)
        if name in PAPER:
            ax.hlines(PAPER[name], i - 0.35, i + 0.35, color="black", linewidth=1.2)
    ax.hlines([], 0, 0, color="black", linewidth=1.2, label="the paper")
    ax.plot([], [], "o", color=style.GRAY, markersize=4, label="ours, one dot a draw of labels")
    ax.set(ylabel=r"mean $|s_j - s_j^*|$", ylim=(0, None))
    ax.set_xticks(range(3), labels.values())
    ax.legend()
    return figure


def claims(record: Record) -> list[Claim]:
    lines = []
    for name, (low, high) in RANGES.items():
        found = np.array(record.values["distances"][name])
        floor = np.mean(record.values["distances"]["full again"])
        ours = (
            f"mean {found.mean():.4f}, range {found.min():.4f} to {found.max():.4f} over draws of the labeled rows"
        )
        note = "" if name == "projection" else f"Two runs of the full posterior differ by {floor:.4f}."
        good = bool(low <= found.mean() <= high)
        lines.append(Claim(f"{name}: mean |s - s*|", f"{PAPER[name]:.4f}", ours, good, note))
    return lines
