"""Numbers of the paper that small runs reproduce."""

import numpy as np
import pytest

from graphuq import datasets, graph, laplacian, prior, sample, spectrum
from graphuq.models import Probit


@pytest.fixture(scope="module")
def voting():
    votes = datasets.voting_records()
    return votes, spectrum.dense(laplacian.normalized(graph.gaussian(votes.X, tau=1.25)))


def test_voting_projection_and_approximation_against_the_full_posterior(voting):
    """Sec. 5.3: mean |s_j - s_j*| is 0.1577 by projection and 0.0261 by approximation at 150 modes."""
    votes, modes = voting
    nodes, y = datasets.few_labels(votes.y, {1: 3, -1: 2}, seed=0)
    model = Probit(nodes, y, gamma=0.1)
    means = {
        name: sample(chosen, model, n_steps=1000, n_warmup=50, n_chains=16, seed=1).label_mean()
        for name, chosen in {
            "full": prior.full(modes),
            "project": prior.project(modes, n_modes=150),
            "approximate": prior.approximate(modes, n_modes=150),
        }.items()
    }
    assert np.abs(means["project"] - means["full"]).mean() == pytest.approx(0.155, abs=0.01)
    assert np.abs(means["approximate"] - means["full"]).mean() < 0.03
