import numpy as np
import pytest

from graphuq.inference.extended import extend_whitening
from graphuq.inference.whiten import whiten
from graphuq.models import Probit
from tests.oracles import dense_covariance, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=3))
SEEN = {"few": np.array([2, 11, 17]), "many": np.arange(0, 30, 2)}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("name", PRIORS)
def test_an_unseen_node_given_as_new_has_the_same_law_twice(name, seen):
    prior, nodes = PRIORS[name], SEEN[seen]
    unseen = np.setdiff1d(np.arange(30), nodes)
    every = np.ones(prior.n_modes, dtype=bool)
    extended = extend_whitening(whiten(prior, nodes), prior.vectors[unseen], every)
    z = np.random.default_rng(0).standard_normal((5, extended.n_latent))
    new = 30 + np.arange(len(unseen))
    np.testing.assert_allclose(extended.mean(z, new), extended.mean(z, unseen), atol=1e-12)
    np.testing.assert_allclose(extended.std(new), extended.std(unseen), atol=1e-12)
    assert np.all(extended.std(nodes) == 0)
    assert extended.field("float32").n_latent == extended.n_latent


@pytest.mark.parametrize("name", PRIORS)
def test_the_law_at_a_new_node_is_the_conditional_gaussian(name):
    """E[u_x | u_seen] and Var[u_x | u_seen] from the covariance in the docstring, by a dense solve."""
    prior, nodes = PRIORS[name], SEEN["few"]
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(4, prior.n_modes)) / np.sqrt(30)
    believed = np.arange(prior.n_modes) < prior.n_modes - 2
    extended = extend_whitening(whiten(prior, nodes), vectors, believed)
    weights = prior.variances - prior.tail_variance
    rows = np.where(believed, vectors, 0)
    cross = (rows * weights) @ prior.vectors[nodes].T
    gain = cross @ np.linalg.inv(prior.covariance(nodes, nodes))
    own = prior.tail_variance + weights[~believed].clip(0).sum() / 30
    expected = np.square(rows) @ weights + own - (gain * cross).sum(axis=1)
    z = rng.standard_normal((6, extended.n_latent))
    new = 30 + np.arange(4)
    np.testing.assert_allclose(extended.mean(z, new), extended.mean(z, nodes) @ gain.T, atol=1e-10)
    np.testing.assert_allclose(extended.std(new) ** 2, expected, atol=1e-10)


def test_a_posterior_on_a_larger_graph():
    from graphuq.inference.independence import sample_independently

    posterior = sample_independently(PRIORS["full"], Probit(SEEN["few"], np.array([1.0, -1.0, 1.0]), gamma=0.5))
    larger = posterior.extended(PRIORS["full"].vectors[[5, 6]])
    assert larger.n_nodes == 32
    np.testing.assert_allclose(larger.label_mean([30, 31]), posterior.label_mean([5, 6]), atol=1e-6)
    with pytest.raises(ValueError, match="30 columns"):
        posterior.extended(np.ones((2, 5)))


def test_a_least_variance_is_filled_up_at_new_nodes_alone():
    """max(least, sum_j v_j q_j(x)^2), with least a quantile of the same sum at the old nodes."""
    prior, nodes = PRIORS["project"], SEEN["few"]
    vectors = prior.vectors[[5, 6, 7]] * np.array([[0.0], [0.1], [5.0]])
    every = np.ones(prior.n_modes, dtype=bool)
    exact = extend_whitening(whiten(prior, nodes), vectors, every)
    filled = extend_whitening(whiten(prior, nodes), vectors, every, 0.25)
    old, new = np.arange(30), 30 + np.arange(3)
    least = np.quantile(np.diag(dense_covariance(prior)), 0.25)
    expected = np.square(exact.std(new)) + np.maximum(least - np.square(vectors) @ prior.variances, 0)
    np.testing.assert_allclose(np.square(filled.std(new)), expected, atol=1e-12)
    np.testing.assert_array_equal(filled.std(old), exact.std(old))
    assert expected[0] == pytest.approx(least)
    assert filled.std(new[2:]) == pytest.approx(exact.std(new[2:]))
