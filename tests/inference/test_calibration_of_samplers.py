"""Simulation-based calibration: u from the prior, labels from the model; the rank of the true u is uniform."""

import numpy as np
import pytest
from scipy.stats import chi2

from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.inference.run import sample
from graphuq.models import LevelSet, Probit
from tests.oracles import four_priors, random_spectrum

PRIOR = four_priors(random_spectrum(seed=2))["approximate"]
NODES = np.array([4, 9, 21, 2])
ASKED = [4, 15]  # a labeled node and another
N_TRIALS, N_RANKS = 100, 10


def simulate(likelihood, u, rng):
    """Labels drawn from the model given u; level-set observations lie near -1 and +1 and are rounded to them."""
    if likelihood is Probit:
        return np.where(u + 0.7 * rng.normal(size=len(u)) >= 0, 1, -1)
    # p(y | u) is proportional to exp(-|y - S(u)|^2 / (2 gamma^2)) over y in {-1, +1}: the wrong one weighs e^(-2/gamma^2)
    wrong = 1 / (1 + np.exp(2 / 1.2**2))
    return np.where(u >= 0, 1, -1) * np.where(rng.random(len(u)) < wrong, -1, 1)


@pytest.mark.parametrize(("likelihood", "gamma"), [(Probit, 0.7), (LevelSet, 1.2)], ids=["probit", "level_set"])
@pytest.mark.parametrize("sampler", [Orthant(), PCN()], ids=["orthant", "pcn"])
@pytest.mark.filterwarnings("ignore:Every label is", "ignore:Not converged")
def test_the_rank_of_the_truth_is_uniform(likelihood, gamma, sampler):
    statistic, narrow = rank_statistics(likelihood, gamma, sampler)
    limit = chi2.ppf(1 - 1e-6, N_RANKS - 1)
    assert statistic.max() < limit
    assert narrow.max() > limit  # a posterior half as wide as it should be is found out


def rank_statistics(likelihood, gamma, sampler):
    """Chi-square statistics of the ranks, of the posterior and of one made too narrow."""
    rng = np.random.default_rng(0)
    counts = np.zeros((2, len(ASKED), N_RANKS))
    for _ in range(N_TRIALS):
        u = PRIOR.sample(seed=rng)[0]
        model = likelihood(NODES, simulate(likelihood, u[NODES], rng), gamma=gamma)
        draws = sample(PRIOR, model, sampler, n_steps=600, n_warmup=300, thin=20, n_chains=4).latent(ASKED)
        draws = draws.reshape(-1, len(ASKED))
        for i, shape in enumerate((1.0, 0.5)):
            scaled = draws.mean(axis=0) + shape * (draws - draws.mean(axis=0))
            rank = (scaled < u[ASKED]).mean(axis=0) * N_RANKS
            counts[i, np.arange(len(ASKED)), np.minimum(rank.astype(int), N_RANKS - 1)] += 1
    expected = N_TRIALS / N_RANKS
    return tuple(np.square(counts - expected).sum(axis=2) / expected)
