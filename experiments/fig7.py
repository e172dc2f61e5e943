"""Fig. 7: the marginal posterior of u at the 6 least and the 6 most certain members, by model; voting records.

A density counts as bimodal by its valley: how far it falls between two peaks, as a share of the lower one.
With epsilon = 10, as printed, the double well (v^2 - 1)^2 / (4 epsilon) is 0.025 deep at a node, which no marginal
can show. So Ginzburg-Landau is shown twice: as printed, and with a well of strength 10, which is epsilon = 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "marginal posteriors of uncertain and of certain members"
MODELS = {
    "ginzburg_landau": "Ginzburg-Landau, as printed",
    "deep_well": "Ginzburg-Landau, deep well",
    "probit": "probit",
    "level_set": "Bayesian level-set",
}
# A valley this deep makes a density bimodal; of 2,000 draws from a normal distribution it stays below 0.05.
BIMODAL = 0.1


@dataclass(frozen=True)
class Config:
    """The paper's values; the number of modes is that of its Sec. 5.3, since Fig. 7 does not say."""

    n_modes: int = 150
    epsilon: float = 10.0
    epsilon_deep_well: float = 0.1
    gamma_ginzburg_landau: float = 0.6
    gamma: float = 0.5
    n_democrats: int = 3
    n_republicans: int = 2
    n_shown: int = 6
    n_steps: int = 1500
    thin_deep_well: int = 5  # wells take long to cross: so many steps a draw
    n_points: int = 121


FULL = Config()
QUICK = Config(n_steps=250)


def trials(config: Config) -> list[Trial]:
    return [{"seed": 0}]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """All models, since the members shown depend on all of them."""
    from experiments import problems
    from graphuq import datasets, prior
    from graphuq.models import GinzburgLandau

    votes, modes = problems.voting()
    nodes, labels = datasets.few_labels(
        votes.y, {1: config.n_democrats, -1: config.n_republicans}, seed=trial["seed"]
    )
    y = labels.astype(float)
    models = {name: make(nodes, y, gamma=config.gamma) for name, make in problems.LIKELIHOODS.items()}
    for name, epsilon in (("ginzburg_landau", config.epsilon), ("deep_well", config.epsilon_deep_well)):
        models[name] = GinzburgLandau(nodes, y, gamma=config.gamma_ginzburg_landau, epsilon=epsilon)
    mu0 = prior.project(modes, n_modes=config.n_modes)
    posteriors = {}
    for name in MODELS:
        n_steps = config.n_steps * (thin := config.thin_deep_well if name == "deep_well" else 1)
        options = {"n_steps": n_steps, "n_warmup": n_steps // 2, "thin": thin, "seed": trial["seed"]}
        posteriors[name] = problems.draw(mu0, models[name], **options)
    # The side of zero, for Ginzburg-Landau too, whose labels are real numbers.
    sides = {name: posterior.classes(noise=False).probability for name, posterior in posteriors.items()}
    s = {name: each[:, 1] - each[:, 0] for name, each in sides.items()}
    sure = np.mean([np.abs(s[name]) for name in MODELS], axis=0)
    others = np.setdiff1d(np.arange(len(sure)), nodes)
    order = others[np.argsort(sure[others])]
    found: dict[str, Any] = {
        "r_hat": {name: posterior.diagnostics().worst_r_hat for name, posterior in posteriors.items()}
    }
    for group, chosen in (("low", order[: config.n_shown]), ("high", order[::-1][: config.n_shown])):
        found[group] = {"members": chosen, "models": {}}
        for name, posterior in posteriors.items():
            draws = posterior.latent(chosen).reshape(-1, len(chosen)).astype(float)
            curves = [density(column, config.n_points) for column in draws.T]
            found[group]["models"][name] = {"s": s[name][chosen], "curves": curves}
    return found


def density(draws: Any, n_points: int) -> dict[str, Any]:
    """A Gaussian kernel estimate by Scott's rule, from the least to the largest draw."""
    from scipy.stats import gaussian_kde

    x = np.linspace(draws.min(), draws.max(), n_points)
    return {"x": x, "density": gaussian_kde(draws)(x)}


def valley(density: Any) -> float:
    """The deepest fall between two peaks, as a share of the lower one; 0 for a density of one peak.

    Peaks less than a tenth as high as the highest are the noise of single draws in the tails.
    """
    density = np.asarray(density)
    left, right = np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1]
    lower = np.minimum(left, right)
    return float(np.max(np.where(lower >= 0.1 * density.max(), 1 - density / lower, 0)))


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    found = results[0]
    for group in ("low", "high"):
        for model in found[group]["models"].values():
            model["valleys"] = [valley(curve["density"]) for curve in model["curves"]]
    return {**found, "worst_r_hat": max(found["r_hat"].values())}


def draw(record: Record) -> Any:
    figure, axes = style.subplots(2, 4, size=(3.5, 2.8))
    colors = (style.BLUE, style.VERMILION, style.GREEN, style.PURPLE, style.ORANGE, style.GRAY)
    for row, (group, word) in zip(axes, (("low", "least"), ("high", "most")), strict=True):
        found = record.values[group]
        for ax, (name, title) in zip(row, MODELS.items(), strict=True):
            model = found["models"][name]
            for curve, s, color in zip(model["curves"], model["s"], colors, strict=True):
                ax.plot(curve["x"], curve["density"], color=color, linewidth=1.2, label=f"{s:+.2f}")
            ax.axvline(0, color="0.6", linewidth=0.8)
            ax.set_title(f"{title}\n{word} certain", fontsize=9)
            ax.set_xlabel("u(i)" if name in style.NAMES and name != "ginzburg_landau" else "v(i)")
            left, right = ax.get_xlim()
            ax.set_xlim(left - 0.28 * (right - left), right)  # room for the legend
            ax.legend(title="$s_i$", fontsize=7, title_fontsize=8, handlelength=1, loc="upper left")
        row[0].set_ylabel("posterior density")
    return figure


def claims(record: Record) -> list[Claim]:
    note = (
        "With epsilon = 10 as printed, the double well at a node is only 0.025 deep, which is too shallow to show in a "
        "marginal. Read as a well of strength 10 (next row), the statement holds."
    )
    lines = [_claim(record, "ginzburg_landau", "low", True, "multi-modal", note)]
    lines += [_claim(record, "deep_well", "low", True, "multi-modal")]
    lines += [_claim(record, "probit", "low", False, "uni-modal")]
    lines += [
        _claim(record, name, "high", False, "essentially uni-modal") for name in ("ginzburg_landau", "deep_well")
    ]
    lines += [_claim(record, "probit", "high", False, "uni-modal")]
    return lines


def _claim(record: Record, name: str, group: str, bimodal: bool, paper: str, note: str = "") -> Claim:
    """A claim that every density of a group has, or has not, two peaks; one with a note has no verdict."""
    valleys = np.array(record.values[group]["models"][name]["valleys"])
    good = bool(np.all(valleys > BIMODAL) if bimodal else np.all(valleys < BIMODAL))
    what = f"{MODELS[name]}: the {'least' if group == 'low' else 'most'} certain members"
    ours = f"densities fall by {valleys.min():.0%} to {valleys.max():.0%} between peaks"
    return Claim(what, paper, ours, None if note else good, note)
