"""One posterior of every kind, small and quick to make."""

from __future__ import annotations

from functools import cache

import numpy as np

from graphuq import prior as priors
from graphuq.inference.independence import sample_independently
from graphuq.inference.orthant import Orthant
from graphuq.models import Probit
from graphuq.posterior import GaussianPosterior, Mixture
from tests.inference.chains import draws
from tests.oracles import random_spectrum

SPECTRUM = random_spectrum(seed=2)
# One prior for each kind of whitening.
PRIORS = {
    "full": priors.full(SPECTRUM),
    "project": priors.project(SPECTRUM, n_modes=4),
    "approximate": priors.approximate(SPECTRUM, n_modes=4),
}
NODES = np.array([21, 4, 9, 17, 2])
Y = {2: np.array([1, 1, 0, 1, 0]), 3: np.array([1, 2, 0, 1, 0])}
GAMMA = 0.4
KINDS = ("draws", "gaussian", "mixture of gaussians", "mixture of draws")
LEAVES = [(kind, n_classes, prior) for kind in KINDS for n_classes in (2, 3) for prior in PRIORS]
# Of several priors the hyper-parameters would have been learned; any two will do.
WEIGHTS = np.array([0.7, 0.3])


def model(n_classes, gamma=GAMMA, nodes=NODES, y=None):
    return Probit(nodes, Y[n_classes] if y is None else y, gamma=gamma, n_classes=n_classes)


@cache
def posterior(kind, n_classes, prior, gamma=GAMMA):
    made = PRIORS[prior]
    if kind == "gaussian":
        return GaussianPosterior.of(made, model(n_classes, gamma))
    if kind == "draws" and n_classes == 2:
        return sample_independently(made, model(2, gamma), n_steps=200, n_chains=4, seed=1)
    if kind == "draws":
        return draws(made, model(3, gamma), Orthant(), n_warmup=20, n_steps=200, n_chains=4, seed=1)
    inner = "gaussian" if kind == "mixture of gaussians" else "draws"
    return Mixture(tuple(posterior(inner, n_classes, prior, each) for each in (gamma, 2 * gamma)), WEIGHTS)
