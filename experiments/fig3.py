"""Fig. 3: four pairs of digits in the plane of the second and third eigenvectors; how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "pairs of digits in the plane of two eigenvectors"


@dataclass(frozen=True)
class Config:
    """The paper's pairs, hardest first; how many points of each are drawn."""

    pairs: tuple[tuple[int, int], ...] = ((4, 9), (3, 8), (0, 6), (5, 7))
    n_shown: int = 1500


FULL = QUICK = Config()


def trials(config: Config) -> list[Trial]:
    return [{"pair": list(pair)} for pair in config.pairs]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    from experiments import problems

    first, second = trial["pair"]
    pair, modes = problems.mnist(first, second)
    plane = modes.vectors[:, 1:3] * np.sqrt(modes.n_nodes)
    shown = np.linspace(0, len(plane) - 1, config.n_shown).astype(int)
    return {
        "pair": [first, second],
        "points": np.round(plane[shown], 3).tolist(),
        "y": pair.y[shown].tolist(),
        "error": separation_error(plane, pair.y),
    }


def separation_error(plane: Any, y: Any) -> float:
    """The share of nodes on the wrong side of the best line in the plane, by logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return float(1 - LogisticRegression(C=1e4).fit(plane, y).score(plane, y))


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"pairs": results}


def draw(record: Record) -> Any:
    figure, axes = style.subplots(1, 4, size=(3, 3))
    for ax, found in zip(axes, record.values["pairs"], strict=True):
        points, y = np.array(found["points"]), np.array(found["y"])
        for label, digit, color, marker in zip(
            (1, -1), found["pair"], (style.BLUE, style.VERMILION), "o^", strict=True
        ):
            mine = points[y == label]
            ax.scatter(*mine.T, s=5, marker=marker, color=color, alpha=0.5, linewidths=0, label=f"digit {digit}")
        ax.set(title=f"{tuple(found['pair'])}, {found['error']:.1%} misplaced", xlabel=r"$\sqrt{N}\,q_2$")
        ax.legend(markerscale=2.5, loc="best", handletextpad=0.1)
    axes[0].set_ylabel(r"$\sqrt{N}\,q_3$")
    return figure


def claims(record: Record) -> list[Claim]:
    errors = [found["error"] for found in record.values["pairs"]]
    ours = ", ".join(f"{tuple(each['pair'])} {each['error']:.2%}" for each in record.values["pairs"])
    rising = bool(np.all(np.diff(errors) < 0))
    what = "the pairs are increasingly easy to separate (share of nodes on the wrong side of the best line)"
    return [Claim(what, "(4, 9) hardest, then (3, 8), (0, 6), (5, 7)", ours, rising)]
