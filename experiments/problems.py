"""The graphs and labels of the paper's experiments, eigenvectors computed once and kept beside the trials."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from experiments.spectra import cached
from graphuq import calibration, datasets, graph, laplacian, sample, spectrum
from graphuq.datasets import Dataset
from graphuq.learning import Hyperprior, learn
from graphuq.models import LevelSet, Model, Probit
from graphuq.posterior import Draws
from graphuq.prior import GaussianPrior
from graphuq.spectrum import Spectrum

LIKELIHOODS: dict[str, Callable[..., Model]] = {"probit": Probit, "level_set": LevelSet}
# What is learned in these experiments is the prior of the graph alone: no slopes in the features, no mistaken labels.
GRAPH_ALONE = Hyperprior(mistakes=None, linear=None)
# The same for all, so that chains of the same shape are compiled once for all experiments.
N_WARMUP = 250
Problem = tuple[Dataset, Spectrum]


def voting() -> Problem:
    """435 members, dense Gaussian weights of width 1.25, all modes."""
    votes = datasets.voting_records()
    return votes, spectrum.dense(laplacian.normalized(graph.gaussian(votes.X, tau=1.25)))


def two_moons(noise: float, seed: int) -> Problem:
    """2,000 points, dense self-tuning weights with the tenth neighbor, all modes."""
    moons = datasets.two_moons(noise=noise, seed=seed)
    return moons, spectrum.dense(laplacian.normalized(graph.self_tuning(moons.X, n_neighbors=10)))


def mnist(first: int, second: int, n_modes: int | None = 300) -> Problem:
    """2,000 images of each of two digits, 50 principal components, 20 nearest neighbors; None: all modes."""
    pair = datasets.mnist_pair(first, second)
    weights = laplacian.normalized(graph.knn(pair.X, n_neighbors=20, n_components=50))
    if n_modes is None:  # 128 MB: cheaper to compute again than to keep
        return pair, spectrum.dense(weights)
    return pair, cached(
        f"mnist {first} {second} 2000 pca 50 knn 20 modes {n_modes}",
        lambda: spectrum.leading(weights, n_modes=n_modes),
    )


def choose(y: NDArray[np.int64], share: float, seed: int, *, of_each_class: bool = True) -> NDArray[np.int64]:
    """That share of the nodes at random, of each class or of all nodes."""
    if not of_each_class:
        return np.random.default_rng(seed).choice(len(y), round(share * len(y)), replace=False)
    return datasets.few_labels(y, {label: round(share * np.sum(y == label)) for label in (1, -1)}, seed=seed)[0]


def with_labels(
    name: str, seed: int, *, noise: float, n_modes: int | None
) -> tuple[Dataset, Spectrum, NDArray[np.int64]]:
    """The paper's data, "voting", "moons" or two digits such as "4 9", with its choice of labels (Sec. 5.1).

    Voting records and two moons have all their modes, digits `n_modes`.
    """
    if name == "voting":
        votes, modes = voting()
        return votes, modes, datasets.few_labels(votes.y, {1: 3, -1: 2}, seed=seed)[0]
    if name == "moons":
        moons, modes = two_moons(noise, seed)
        return moons, modes, choose(moons.y, 0.03, seed, of_each_class=False)
    first, second = map(int, name.split())
    pair, modes = mnist(first, second, n_modes)
    return pair, modes, choose(pair.y, 0.04, seed)


def draw(prior: GaussianPrior, model: Model, sampler: Any = None, *, seed: int, **options: Any) -> Draws:
    """A posterior, by the default sampler unless told; convergence goes into records, not into a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return sample(prior, model, sampler, seed=seed, **{"n_warmup": N_WARMUP, **options})


def measured(posterior: Draws) -> dict[str, float]:
    """Var(l) (3.2), the largest R-hat, and the fewest effective draws."""
    found = posterior.diagnostics()
    ess = float(min(found.ess_bulk.min(), found.ess_tail.min()))
    return {"variance": posterior.mean_label_variance(), "r_hat": found.worst_r_hat, "ess": ess}


def probabilities(
    mu0: GaussianPrior, modes: Spectrum, nodes: NDArray[np.int64], y: NDArray[np.int64], config: Any, seed: int
) -> tuple[dict[str, NDArray[np.float64]], float]:
    """P(u_j >= 0) at every node by the learned prior on `modes` and by the prior `mu0`; the R-hat of the latter.

    The learned one averages expectation propagation over hyper-parameters, so it has no chains.
    """
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # few labels leave hyper-parameters open: that is averaged over
        learned = learn(modes, LIKELIHOODS["probit"](nodes, y[nodes]), hyperprior=GRAPH_ALONE).posterior
    model = LIKELIHOODS["probit"](nodes, y[nodes], gamma=config.gamma)
    posterior = draw(mu0, model, n_steps=config.n_steps, seed=seed)
    both = {"learned": learned, "paper": posterior}
    found = {name: each.classes(noise=False).probability[:, 1] for name, each in both.items()}
    return found, posterior.diagnostics().worst_r_hat


def scores(probability: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, float]:
    """How good probabilities are: their own variance Var(l), and what the truth says of them."""
    return {
        "variance": float(np.mean(4 * probability * (1 - probability))),
        "accuracy": calibration.accuracy(probability, y),
        "log_loss": calibration.log_loss(probability, y),
        "ece": calibration.reliability(probability, y).ece,
    }


def worst(results: Iterable[dict[str, Any]]) -> float | None:
    """The largest R-hat among results that each hold one; None where one of them is not finite."""
    values = [result["r_hat"] for result in results]
    return None if None in values else max(values)


def mean_and_error(values: Any, axis: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean over trials and its standard error; the error of one trial is not known and counts as 0."""
    values = np.asarray(values, dtype=float)
    n = values.shape[axis]
    error = values.std(axis=axis, ddof=1) / np.sqrt(n) if n > 1 else np.zeros_like(values.mean(axis=axis))
    return values.mean(axis=axis), error


def rises(mean: Any, error: Any) -> bool:
    """Whether a curve ends higher than it starts, no step down exceeding two standard errors or 1% of the rise."""
    steps, errors, rise = np.diff(mean), np.hypot(error[:-1], error[1:]), mean[-1] - mean[0]
    return bool(rise > 0 and np.all(steps >= -np.maximum(2 * errors, 0.01 * rise)))


def show(mean: float, error: float) -> str:
    """A number with its error."""
    return f"{mean:.4f} ± {error:.4f}"
