"""Fig. 1: minus the log likelihood of one label, y = 1, as a function of u, for probit and level-set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Claim, Record, Trial

TITLE = "minus the log likelihood at one node"


@dataclass(frozen=True)
class Config:
    """The paper's values."""

    gamma: float = math.sqrt(0.5)
    largest_u: float = 2.0
    n_points: int = 401


FULL = QUICK = Config()


def trials(config: Config) -> list[Trial]:
    return [{"y": 1}]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    import warnings

    import jax

    from experiments.problems import LIKELIHOODS

    warnings.simplefilter("ignore", UserWarning)  # that one label is of one class only is the point here
    u = np.linspace(-config.largest_u, config.largest_u, config.n_points)
    models = {name: make([0], [trial["y"]], gamma=config.gamma) for name, make in LIKELIHOODS.items()}
    return {
        "u": u,
        "phi": {
            name: np.asarray(jax.vmap(model.phi)(jax.numpy.asarray(u[:, None]))) for name, model in models.items()
        },
    }


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    return results[0]


def draw(record: Record) -> Any:
    figure, ax = style.subplots(size=(5, 3.4))
    u = np.array(record.values["u"])
    for name, dash in (("probit", "-"), ("level_set", "--")):
        phi = np.array(record.values["phi"][name])
        ax.plot(u, phi, dash, color=style.COLORS[name], label=style.NAMES[name])
    ax.set(xlabel="$u(j)$", ylabel=r"$\Phi(u(j);\, y(j) = 1)$", title=rf"$\gamma = {record.config['gamma']:.3f}$")
    ax.legend()
    return figure


def claims(record: Record) -> list[Claim]:
    u, phi = np.array(record.values["u"]), record.values["phi"]
    probit, level_set = np.array(phi["probit"]), np.array(phi["level_set"])
    convex = bool((np.diff(probit, 2) > -1e-5).all() and (np.diff(probit) < 0).all())
    height = 2 / record.config["gamma"] ** 2
    step = bool(np.allclose(level_set, np.where(u < 0, height, 0), rtol=1e-5))
    return [
        Claim(
            "probit is convex and falls with u", "a curve", "convex and falling" if convex else "not so", convex
        ),
        Claim(
            "level-set is a step at u = 0 of height 2 / gamma^2",
            "a curve",
            f"{level_set.max():.3f} for u < 0",
            step,
        ),
    ]
