"""A prior and labels in; how many nodes each of the classifiers of the appendix gets right, out, and its picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import style
from experiments.experiment import Claim
from experiments.problems import mean_and_error
from graphuq.prior import GaussianPrior

# name: how it is written, its color, its marker
METHODS = {
    "gl_random": ("Ginzburg-Landau, random start", style.ORANGE, "v"),
    "gl_probit": ("Ginzburg-Landau, probit start", style.GREEN, "^"),
    "probit": ("probit", style.BLUE, "o"),
    "fiedler": ("Fiedler vector", style.GRAY, "D"),
}
GAMMA_PROBIT, GAMMA_GL, EPSILON = 0.1, 1.0, 1.0  # captions of Fig. 9 and 10


def accuracies(
    prior: GaussianPrior, y: NDArray[np.int64], nodes: NDArray[np.int64], seed: int
) -> dict[str, float]:
    """The share of unlabeled nodes that each method gets right."""
    from graphuq import find_mode
    from graphuq.models import GinzburgLandau, Probit

    convex = find_mode(prior, Probit(nodes, y[nodes], gamma=GAMMA_PROBIT)).u
    wells = GinzburgLandau(nodes, y[nodes], gamma=GAMMA_GL, epsilon=EPSILON)
    from_random, from_probit = (find_mode(prior, wells, start=u) for u in (prior.sample(seed=seed)[0], convex))
    rest = np.setdiff1d(np.arange(len(y)), nodes)
    # The clusters of the Fiedler vector have no names: the better way to name them counts.
    same_side = np.mean((prior.vectors[rest, 1] >= 0) == (y[rest] > 0))
    right = {"gl_random": from_random.u, "gl_probit": from_probit.u, "probit": convex}
    found = {name: float(np.mean((u[rest] >= 0) == (y[rest] > 0))) for name, u in right.items()}
    return {**found, "fiedler": float(max(same_side, 1 - same_side))}


def summary(share: float, trials: list[list[dict[str, float]]]) -> dict[str, Any]:
    """At one share of labels, from the accuracies of many trials at each of some settings: quartiles of every method.

    The gain is that of Ginzburg-Landau from the probit mode over probit, trial by trial: mean and error.
    """
    bands = {
        name: [np.quantile([trial[name] for trial in each], (0.25, 0.5, 0.75)).tolist() for each in trials]
        for name in METHODS
    }
    gain = mean_and_error([trial["gl_probit"] - trial["probit"] for each in trials for trial in each])
    return {"share": share, "quartiles": bands, "gain": gain}


def panel(ax: Any, x: list[float], bands: dict[str, list[list[float]]], offset: float) -> None:
    """Medians with bars from quartile to quartile, moved apart by `offset` so that none hides another."""
    for i, (name, band) in enumerate(bands.items()):
        label, color, marker = METHODS[name]
        low, middle, high = 100 * np.array(band).T
        at = np.array(x) + offset * (i - (len(bands) - 1) / 2)
        style_of = {"color": color, "marker": marker, "label": label, "markersize": 4.5, "capsize": 2}
        ax.errorbar(at, middle, [middle - low, high - middle], linewidth=1.2, **style_of)


def claims(summaries: list[dict[str, Any]]) -> list[Claim]:
    """What the appendix says of the methods, at all shares of labels."""
    gains = [each["gain"] for each in summaries]
    spread = {
        name: [float(np.mean(np.ptp(np.array(each["quartiles"][name])[:, [0, 2]], axis=1))) for each in summaries]
        for name in METHODS
    }
    shares = [f"{each['share']:.1%} labels" for each in summaries]
    better = all(mean > -2 * (error or 0) for mean, error in gains) and sum(mean for mean, _ in gains) > 0
    erratic = np.mean(spread["gl_random"]) > max(np.mean(spread["gl_probit"]), np.mean(spread["probit"]))
    ours = [
        f"{label} {100 * mean:+.2f} ± {100 * (error or 0):.2f}"
        for label, (mean, error) in zip(shares, gains, strict=True)
    ]
    widths = ", ".join(
        f"{METHODS[name][0]} {100 * np.mean(spread[name]):.1f}" for name in METHODS if name != "fiedler"
    )
    fewer = [f"{label} {100 * each:.1f}" for label, each in zip(shares, spread["gl_random"], strict=True)]
    return [
        Claim(
            "Ginzburg-Landau from the probit mode against probit (points of accuracy)",
            "typically slightly better",
            "; ".join(ours),
            bool(better),
            "The direction agrees, but the gain can be more than slight: at the mode of probit most nodes are close to "
            "zero, and the double well pushes them to one side.",
        ),
        Claim(
            "Ginzburg-Landau from a random start is erratic (mean interquartile range, points)",
            "large variance, from sub-optimal local minima",
            widths,
            bool(erratic),
        ),
        Claim(
            "how erratic it is for each share of labels (interquartile range from a random start, points)",
            "depends on the share; no direction is given",
            "; ".join(fewer),
            None,
        ),
    ]
