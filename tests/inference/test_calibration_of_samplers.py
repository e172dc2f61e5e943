"""Simulation-based calibration: u from the prior, labels from the model; the rank of the true u is uniform."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2

from graphuq.inference.orthant import Orthant
from graphuq.inference.pcn import PCN
from graphuq.models import LevelSet, Probit
from tests.inference.chains import draws
from tests.oracles import four_priors, random_spectrum

PRIOR = four_priors(random_spectrum(seed=2))["approximate"]
ASKED = [4, 15]  # a labeled node and another
N_TRIALS, N_RANKS = 400, 10
MODELS = {
    "probit": Probit([4, 9, 21, 2], [0, 1, 0, 1], gamma=0.7),
    "level_set": LevelSet([4, 9, 21, 2], [0, 1, 0, 1], gamma=1.2),
    "probit_with_mistakes_3": Probit([4, 9], [0, 1], gamma=0.7, delta=0.1, n_classes=3),
    "level_set_3": LevelSet([4, 9], [0, 1], gamma=1.0, n_classes=3),
}
SAMPLERS = {"orthant": (Orthant(), 20, 100), "pcn": (PCN(beta=0.5), 200, 600)}
CASES = [(name, "orthant") for name in MODELS] + [("probit", "pcn"), ("level_set", "pcn")]


def simulate(model, u, rng):
    """Labels drawn from the model given u at the labeled nodes, shape (n_labeled, n_fields)."""
    if isinstance(model, Probit):
        u = u + model.gamma * rng.standard_normal(u.shape)
    if model.n_fields == 1:
        right = (u[:, 0] >= 0).astype(int)
        # P(y | u) is proportional to exp(-|y - S(u)|^2 / (2 gamma^2)): the wrong one weighs exp(-2 / gamma^2)
        odds = 0.0 if isinstance(model, Probit) else np.exp(-2 / model.gamma**2)
        return np.where(rng.random(len(u)) < odds / (1 + odds), 1 - right, right)
    order = np.argsort(-u, axis=1)
    if isinstance(model, Probit):  # by rank
        weight = (model.delta / (1 - model.delta)) ** np.arange(model.n_classes)
    else:  # all corners but that of the largest are as far
        weight = np.where(np.arange(model.n_classes) == 0, 1, np.exp(-1 / model.gamma**2))
    rank = rng.choice(model.n_classes, len(u), p=weight / weight.sum())
    return order[np.arange(len(u)), rank]


@cache
def posterior_draws(name, sampler, labels):
    """u at the asked nodes, (n_draws, n_asked, n_fields): the posterior depends on the labels alone, and they are few."""
    made = replace(MODELS[name], y=labels)
    return draws(PRIOR, made, *SAMPLERS[sampler]).latent(ASKED).reshape(-1, len(ASKED), made.n_fields)


def rank_statistics(name, sampler):
    """Chi-square statistics of the ranks, of the posterior and of one made too narrow."""
    rng, model = np.random.default_rng(0), MODELS[name]
    counts = np.zeros((2, len(ASKED), N_RANKS))
    for _ in range(N_TRIALS):
        u = PRIOR.sample(model.n_fields, seed=rng).T
        labels = tuple(int(y) for y in simulate(model, u[model.nodes], rng))
        found = posterior_draws(name, sampler, labels)
        # With several fields: how far the first is ahead of the second.
        found, truth = (each[..., 0] - (each[..., 1] if model.n_fields > 1 else 0) for each in (found, u[ASKED]))
        for i, shape in enumerate((1.0, 0.5)):
            scaled = found.mean(axis=0) + shape * (found - found.mean(axis=0))
            rank = (scaled < truth).mean(axis=0) * N_RANKS
            counts[i, np.arange(len(ASKED)), np.minimum(rank.astype(int), N_RANKS - 1)] += 1
    expected = N_TRIALS / N_RANKS
    return tuple(np.square(counts - expected).sum(axis=2) / expected)


@pytest.mark.parametrize(("name", "sampler"), CASES)
@pytest.mark.filterwarnings("ignore:Every label is")
def test_the_rank_of_the_truth_is_uniform(name, sampler):
    statistic, narrow = rank_statistics(name, sampler)
    limit = chi2.ppf(1 - 1e-6, N_RANKS - 1)
    assert statistic.max() < limit
    assert narrow.max() > limit  # a posterior half as wide as it should be is found out
