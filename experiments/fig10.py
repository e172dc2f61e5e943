"""Fig. 10: accuracy of most probable labels on MNIST 4/9 against the share of labeled nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments import classifiers, style
from experiments.experiment import Claim, Record, Trial

TITLE = "accuracy of four classifiers on MNIST 4/9"


@dataclass(frozen=True)
class Config:
    """The paper's values; 2% is added to its shares of labels. The Fiedler vector is added to its methods."""

    shares: tuple[float, ...] = (0.005, 0.01, 0.02, 0.03)
    n_modes: int = 300
    n_trials: int = 50


FULL = Config()
QUICK = Config(n_trials=6)


def trials(config: Config) -> list[Trial]:
    return [{"seed": seed} for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """All shares and methods for one draw of the labels."""
    from experiments import problems
    from graphuq import prior

    pair, modes = problems.mnist(4, 9, config.n_modes)
    mu0, seed = prior.project(modes), trial["seed"]
    nodes = [problems.choose(pair.y, share, seed) for share in config.shares]
    return {"accuracy": [classifiers.accuracies(mu0, pair.y, each, seed) for each in nodes]}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """For every share of labels, quartiles of every method."""
    found = [[result["accuracy"][i] for result in results] for i in range(len(config.shares))]
    return {"shares": [classifiers.summary(s, [each]) for s, each in zip(config.shares, found, strict=True)]}


def draw(record: Record) -> Any:
    found = record.values["shares"]
    figure, ax = style.subplots(size=(6.2, 4.2))
    bands = {name: [each["quartiles"][name][0] for each in found] for name in classifiers.METHODS}
    classifiers.panel(ax, [100 * each["share"] for each in found], bands, 0.03)
    ax.set_xlabel("nodes labeled (%)")
    ax.set_ylabel(f"accuracy at unlabeled nodes (%)\nmedian and quartiles of {record.config['n_trials']} trials")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def claims(record: Record) -> list[Claim]:
    return classifiers.claims(record.values["shares"])
