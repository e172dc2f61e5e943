"""Expectation propagation against long exact chains: label means at every node of four posteriors, both models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import problems, style
from experiments.experiment import Claim, Record, Trial
from graphuq import datasets, prior
from graphuq.inference.star_ep import Fit
from graphuq.learning import learn
from graphuq.models import Model, Probit
from graphuq.posterior import GaussianPosterior
from graphuq.prior import GaussianPrior
from graphuq.spectrum import Spectrum

TITLE = "label means by expectation propagation against long exact chains"
NAMES = {"voting": "voting", "moons": "two moons", "mnist 4 9": "MNIST 4/9", "mnist 5 7": "MNIST 5/7"}


@dataclass(frozen=True)
class Config:
    """Settings; the paper's where it has them.

    Attributes:
        data: which posteriors, see `NAMES`.
        gamma: noise of the labels, where the prior is the paper's.
        noise: of the two moons.
        share_moons, share_mnist: share of each class that is labeled; of the voters it is 3 and 2.
        n_modes: of MNIST.
        n_steps: draws of each chain.
        n_chains: chains of the orthant sampler.
        limit: the mean difference allowed.
        seed: of labels and chains.
    """

    data: tuple[str, ...] = tuple(NAMES)
    gamma: float = 0.1
    noise: float = 0.06
    share_moons: float = 0.03
    share_mnist: float = 0.04
    n_modes: int = 300
    n_steps: int = 2000
    n_chains: int = 16
    limit: float = 0.02
    seed: int = 0


FULL = Config()
QUICK = Config(data=("voting", "moons"), n_steps=500)


def trials(config: Config) -> list[Trial]:
    """Both models under the paper's prior, and probit under the prior that it learns."""
    cases = (("probit", "paper"), ("level_set", "paper"), ("probit", "learned"))
    return [{"data": data, "model": model, "prior": which} for data in config.data for model, which in cases]


def run(config: Config, trial: Trial) -> dict[str, Any]:
    """How far the two are apart, and how far Monte-Carlo noise alone would put them."""
    gaussian, modes, nodes, y = posterior(config, trial["data"])
    model = problems.LIKELIHOODS[trial["model"]](nodes, y, gamma=config.gamma)
    if trial["prior"] == "learned":
        found = learn(modes, Probit(nodes, y), hyperprior=problems.GRAPH_ALONE, average=False)
        gaussian, model = found.prior, found.model
    fit, probability = label_probability(gaussian, model)
    chains = problems.draw(gaussian, model, n_steps=config.n_steps, n_chains=config.n_chains, seed=config.seed)
    exact = chains.labels()
    difference = np.abs(2 * probability - 1 - exact.mean)
    unlabeled = np.setdiff1d(np.arange(len(difference)), nodes)
    return {
        **trial,
        "gamma": float(getattr(model, "gamma", config.gamma)),
        "n_labels": len(nodes),
        "mean": difference.mean(),
        "mean_unlabeled": difference[unlabeled].mean(),
        "max": difference.max(),
        "monte_carlo": np.sqrt(2 / np.pi) * exact.error.mean(),
        "max_monte_carlo": exact.error.max(),
        "r_hat": chains.diagnostics().worst_r_hat,
        "ep_converged": fit.converged,
        "n_sweeps": fit.n_sweeps,
        "pairs": np.column_stack([exact.mean, 2 * probability - 1])[:: max(1, len(difference) // 200)],
    }


def posterior(config: Config, data: str) -> tuple[GaussianPrior, Spectrum, NDArray[np.int64], NDArray[np.int64]]:
    """The paper's prior, the spectrum behind it, labeled nodes and their labels."""
    if data == "voting":
        votes, modes = problems.voting()
        nodes, y = datasets.few_labels(votes.y, {1: 3, -1: 2}, seed=config.seed)
        return prior.full(modes), modes, nodes, y
    if data == "moons":
        moons, modes = problems.two_moons(config.noise, config.seed)
        nodes = problems.choose(moons.y, config.share_moons, config.seed)
        return prior.full(modes), modes, nodes, moons.y[nodes]
    _, first, second = data.split()
    pair, modes = problems.mnist(int(first), int(second), config.n_modes)
    nodes = problems.choose(pair.y, config.share_mnist, config.seed)
    return prior.project(modes), modes, nodes, pair.y[nodes]


def label_probability(gaussian: GaussianPrior, model: Model) -> tuple[Fit, NDArray[np.float64]]:
    """P(u_j >= 0) at every node by expectation propagation under a given prior."""
    found = GaussianPosterior.of(gaussian, model)
    return found.fit, found.classes(noise=False).probability[:, 1]


def summarize(config: Config, results: list[dict[str, Any]]) -> dict[str, Any]:
    """One row a posterior."""
    return {"rows": results, "worst_r_hat": problems.worst(results)}


def draw(record: Record) -> Any:
    """Label means of the two methods at some 200 nodes of each posterior."""
    rows = record.values["rows"]
    data = [name for name in NAMES if any(row["data"] == name for row in rows)]
    figure, axes = style.subplots(1, len(data), size=(2.9, 2.9), sharex=True, sharey=True, squeeze=False)
    for ax, name in zip(axes[0], data, strict=True):
        for row in (row for row in rows if row["data"] == name):
            learned = row["prior"] == "learned"
            ax.plot(
                *np.array(row["pairs"]).T,
                "^" if learned else style.MARKERS[row["model"]],
                color=style.GREEN if learned else style.COLORS[row["model"]],
                label="probit, learned prior" if learned else style.NAMES[row["model"]],
                markersize=3,
                alpha=0.5,
            )
        ax.plot([-1, 1], [-1, 1], color=style.GRAY, linewidth=0.8)
        ax.set(title=NAMES[name], xlabel="exact chains", xlim=(-1.03, 1.03), ylim=(-1.03, 1.03))
    axes[0, 0].set_ylabel("expectation propagation")
    axes[0, 0].legend(loc="upper left", fontsize="x-small", handletextpad=0.2)
    return figure


def claims(record: Record) -> list[Claim]:
    """Every posterior within the limit."""
    limit = record.config["limit"]
    return [
        Claim(
            what=f"{NAMES[row['data']]}, {style.NAMES[row['model']]}, {row['prior']} prior: "
            f"mean difference of s_j under {limit}",
            paper="not in the paper",
            ours=f"mean {row['mean']:.4f}, largest {row['max']:.3f}; Monte-Carlo error {row['monte_carlo']:.4f}",
            agrees=row["mean"] < limit,
            note="" if row["ep_converged"] else "Expectation propagation did not converge.",
        )
        for row in record.values["rows"]
    ]
