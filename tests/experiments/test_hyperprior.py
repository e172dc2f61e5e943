"""The choice of the hyperprior: a cloud of hyper-parameters stands for any hyperprior by its weights."""

from dataclasses import replace

import numpy as np
import pytest
from experiments import hyperprior
from scipy.stats import norm

from graphuq import graph, laplacian, spectrum
from graphuq.learning import LogNormal

CONFIG = replace(hyperprior.QUICK, n_points=64, n_test=20)


@pytest.fixture(scope="module")
def cloud():
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], 20)
    modes = spectrum.dense(laplacian.normalized(graph.knn(rng.normal(size=(40, 2)) + y[:, None], n_neighbors=6)))
    nodes = np.array([0, 7, 25, 33])
    return hyperprior.make_cloud(modes, y, nodes, y[nodes], config=CONFIG, task="toy", setting=0)


def test_a_hyperprior_survives_packing():
    again = hyperprior.unpack(hyperprior.pack(hyperprior.DEFAULT))
    for name in (*hyperprior.LEARNED, "n_effective"):
        before, after = getattr(hyperprior.DEFAULT, name), getattr(again, name)
        assert (after.median, after.factor) == pytest.approx((before.median, before.factor))


def test_weights_are_evidence_times_the_ratio_of_densities(cloud):
    name = hyperprior.LEARNED[0]
    wide = getattr(hyperprior.PROPOSAL, name)
    narrow = LogNormal(1.5 * wide.median, np.sqrt(wide.factor))
    _, found = hyperprior.averaged(cloud, replace(hyperprior.PROPOSAL, **{name: narrow}))
    x = cloud.theta[:, 0]
    ratio = norm.pdf(x, np.log(narrow.median), np.log(narrow.factor)) / norm.pdf(
        x, np.log(wide.median), np.log(wide.factor)
    )
    weights = np.exp(cloud.log_evidence) * ratio
    np.testing.assert_allclose(found, weights @ cloud.noisy / weights.sum())


def test_a_cloud_predicts_what_its_labels_say(cloud):
    for p in hyperprior.averaged(cloud, hyperprior.DEFAULT):
        assert p.shape == (CONFIG.n_test,)
        assert p.mean() > 0.6
