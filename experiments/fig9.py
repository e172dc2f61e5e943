"""Fig. 9: accuracy of most probable labels on two moons against feature noise, at three shares of labeled nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments import classifiers, style
from experiments.experiment import Claim, Record, Trial

TITLE = "accuracy of four classifiers on two moons"


@dataclass(frozen=True)
class Config:
    """The paper's values. Its noise levels are not printed: those of Fig. 5 are used."""

    noise: tuple[float, ...] = tuple(round(0.02 + 0.01 * i, 2) for i in range(11))
    shares: tuple[float, ...] = (0.005, 0.01, 0.03)
    n_nodes: int = 2000
    n_modes: int = 150
    n_trials: int = 50


FULL = Config()
QUICK = Config(noise=(0.02, 0.06, 0.1), n_trials=6)


def trials(config: Config) -> list[Trial]:
    return [{"noise": noise, "seed": seed} for noise in config.noise for seed in range(config.n_trials)]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """All shares and methods on one draw of the moons."""
    from experiments import problems
    from graphuq import datasets, graph, laplacian, prior, spectrum

    seed = trial["seed"]
    moons = datasets.two_moons(config.n_nodes, noise=trial["noise"], seed=seed)
    weights = graph.self_tuning(moons.X, n_neighbors=10)
    mu0 = prior.project(spectrum.dense(laplacian.normalized(weights), n_modes=config.n_modes))
    found = [
        classifiers.accuracies(mu0, moons.y, problems.choose(moons.y, share, seed), seed)
        for share in config.shares
    ]
    return {"noise": trial["noise"], "accuracy": found}


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """For every share of labels, quartiles of every method at every noise."""
    panels = []
    for i, share in enumerate(config.shares):
        found = [[r["accuracy"][i] for r in results if r["noise"] == noise] for noise in config.noise]
        panels.append(classifiers.summary(share, found))
    return {"noise": list(config.noise), "panels": panels}


def draw(record: Record) -> Any:
    noise, panels = record.values["noise"], record.values["panels"]
    figure, axes = style.subplots(1, len(panels), size=(4.2, 3.4), sharey=True, squeeze=False)
    for ax, found in zip(axes[0], panels, strict=True):
        classifiers.panel(ax, noise, found["quartiles"], 0.0012)
        ax.set(title=f"{found['share']:.1%} of nodes labeled", xlabel=r"noise $\sigma$ of every feature")
    axes[0, 0].set_ylabel(
        f"accuracy at unlabeled nodes (%)\nmedian and quartiles of {record.config['n_trials']} trials"
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def claims(record: Record) -> list[Claim]:
    return classifiers.claims(record.values["panels"])
