import jax
import numpy as np
import pytest

from graphuq.inference.whiten import OnLabels, OnModes, OnModesAndLabels, whiten
from tests.oracles import dense_covariance, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum())
EVERY = np.arange(30)


def dense_map(whitening):
    """B as a matrix, from the map used inside chains."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(whitening.field("float64"))(np.eye(whitening.n_latent))).T


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("n_seen", [1, 3, 20])
def test_every_reduction_is_exact(name, n_seen):
    """B B^T, E[u u_seen] and Var[u] are those of the dense covariance."""
    prior, nodes = PRIORS[name], np.random.default_rng(n_seen).choice(30, n_seen, replace=False)
    whitening, dense = whiten(prior, nodes), dense_covariance(prior)
    B = dense_map(whitening)
    K = whitening.mean(np.eye(whitening.n_latent), EVERY).T
    np.testing.assert_allclose(B @ B.T, dense[np.ix_(nodes, nodes)], atol=1e-13)
    np.testing.assert_allclose(K[nodes], B, atol=1e-13)
    np.testing.assert_allclose(K @ B.T, dense[:, nodes], atol=1e-13)
    np.testing.assert_allclose((K**2).sum(1) + whitening.std(EVERY) ** 2, np.diag(dense), atol=1e-12)
    assert np.all(whitening.std(nodes) == 0)
    assert whitening.field("float32").n_latent == whitening.n_latent


@pytest.mark.parametrize("name", PRIORS)
def test_what_is_left_open_is_the_conditional_variance(name):
    """Var[u_j | u_seen] of the dense Gaussian is what std adds to what z says beyond u_seen."""
    prior, nodes = PRIORS[name], np.array([2, 11, 17])
    whitening, dense = whiten(prior, nodes), dense_covariance(prior)
    gain = dense[:, nodes] @ np.linalg.inv(dense[np.ix_(nodes, nodes)])
    expected = np.diag(dense) - (gain * dense[:, nodes]).sum(1)
    np.testing.assert_allclose(whitening.std(EVERY) ** 2, expected, atol=1e-12)


def test_the_cheapest_reduction_is_chosen():
    few, many = np.arange(3), np.arange(20)
    assert isinstance(whiten(PRIORS["project"], few), OnLabels)
    assert isinstance(whiten(PRIORS["project"], many), OnModes)
    assert isinstance(whiten(PRIORS["approximate"], few), OnLabels)
    assert isinstance(whiten(PRIORS["approximate"], many), OnModesAndLabels)
    assert isinstance(whiten(PRIORS["matern_tail"], many), OnModesAndLabels)
    assert isinstance(whiten(PRIORS["full"], EVERY), OnModes)
    assert isinstance(whiten(PRIORS["matern_tail"], EVERY), OnLabels)


def test_a_nearly_singular_block_is_no_trouble():
    """Two coinciding nodes under a smooth prior: C[seen, seen] has rank one less, nothing is divided by."""
    from graphuq.prior import GaussianPrior

    vectors = PRIORS["project"].vectors.copy()
    vectors[1] = vectors[0]
    prior = GaussianPrior(vectors, PRIORS["project"].variances)
    whitening = whiten(prior, np.array([0, 1, 5]))
    K = whitening.mean(np.eye(whitening.n_latent), EVERY).T
    covariance = (vectors * prior.variances) @ vectors.T
    np.testing.assert_allclose(K @ dense_map(whitening).T, covariance[:, [0, 1, 5]], atol=1e-13)


def test_nodes_outside_the_graph_are_refused():
    with pytest.raises(ValueError, match="Node 30 is not in the graph"):
        whiten(PRIORS["full"], np.array([1, 30]))
