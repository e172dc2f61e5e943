"""The posteriors that samplers are measured on: the shapes of the paper's Table 2 and their kin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphuq import baselines, datasets, graph, laplacian, prior, spectrum
from graphuq.inference.watch import watched_nodes
from graphuq.inference.whiten import whiten
from graphuq.models import LevelSet, Model, Probit
from graphuq.prior import GaussianPrior


@dataclass(frozen=True)
class Problem:
    """A prior and labels; the model is made with a choice of likelihood."""

    name: str
    prior: GaussianPrior
    nodes: np.ndarray
    y: np.ndarray
    gamma: float

    def model(self, likelihood: str) -> Model:
        """Probit or level-set on these labels."""
        return {"probit": Probit, "level_set": LevelSet}[likelihood](self.nodes, self.y, gamma=self.gamma)

    @property
    def watched(self) -> np.ndarray:
        """Ten labeled nodes and ten others."""
        return watched_nodes(whiten(self.prior, self.nodes), self.model("probit"))


def _choose(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """That share of each class, at random."""
    rng = np.random.default_rng(seed)
    parts = [np.flatnonzero(y == label) for label in (1, -1)]
    return np.concatenate([rng.choice(part, round(share * len(part)), replace=False) for part in parts])


def voting(seed: int = 0) -> Problem:
    """435 nodes, full spectrum, 5 labels."""
    votes = datasets.voting_records()
    modes = spectrum.dense(laplacian.normalized(graph.gaussian(votes.X, tau=1.25)))
    rng = np.random.default_rng(seed)
    nodes = np.concatenate([rng.choice(np.flatnonzero(votes.y == s), n, False) for s, n in ((1, 3), (-1, 2))])
    return Problem("voting", prior.full(modes), nodes, votes.y[nodes], 0.1)


def two_moons(seed: int = 0) -> Problem:
    """2,000 nodes, full spectrum, 60 labels."""
    moons = datasets.two_moons(noise=0.06, seed=seed)
    modes = spectrum.dense(laplacian.normalized(graph.self_tuning(moons.X, n_neighbors=10)))
    nodes = _choose(moons.y, 0.03, seed)
    return Problem("two moons", prior.full(modes), nodes, moons.y[nodes], 0.1)


def mnist(seed: int = 0, *, n_per_digit: int | None = 2000, n_labels: int = 160, n_modes: int = 300) -> Problem:
    """MNIST 4 against 9: 4,000 nodes and 160 labels, or all training images and as many as asked for."""
    digits = datasets.mnist_pair(4, 9, n_per_digit=n_per_digit, seed=seed)
    weights = graph.knn(digits.X, n_neighbors=20, n_components=50)
    modes = spectrum.leading(laplacian.normalized(weights), n_modes=n_modes)
    nodes = _choose(digits.y, n_labels / len(digits.y), seed)
    return Problem(f"MNIST 4/9, {len(digits.y):,} nodes", prior.project(modes), nodes, digits.y[nodes], 0.1)


def fours_and_nines(n_labels: int) -> tuple[datasets.Dataset, np.ndarray, np.ndarray]:
    """4,000 images of MNIST, so many of them labeled, half of each digit: the data, the nodes and their labels."""
    digits = datasets.mnist_pair(4, 9, n_per_digit=2000, seed=0)
    return digits, *datasets.few_labels(digits.y, {1: n_labels // 2, -1: n_labels // 2}, seed=0)


def plume(seed: int = 0, *, n_nodes: int | None = None, n_labels: int = 8000, n_modes: int = 50) -> Problem:
    """The synthetic plume: 286,720 pixels or so many of them, cosine weights.

    As in the paper, labels are those of spectral clustering, here the sign of the Fiedler vector.
    """
    scene = datasets.plume(seed)
    rows = np.linspace(0, len(scene.X) - 1, n_nodes or len(scene.X)).astype(int)
    modes = spectrum.low_rank(graph.cosine(scene.X[rows]), n_modes=n_modes)
    y = baselines.fiedler(modes)
    nodes = np.random.default_rng(seed).choice(len(y), n_labels, replace=False)
    return Problem("plume", prior.project(modes), nodes, y[nodes], 1.0)
