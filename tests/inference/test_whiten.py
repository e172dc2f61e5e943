import jax
import numpy as np
import pytest

from graphuq import PCN, sample
from graphuq.inference.whiten import OnLabels, OnModes, OnModesAndLabels, whiten
from graphuq.models import GinzburgLandau, Probit
from graphuq.new_rows import NewRows
from graphuq.posterior import GaussianPosterior
from graphuq.prior import approximate
from tests.oracles import dense_covariance, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum())
EVERY = np.arange(30)


def dense_map(whitening):
    """B as a matrix, from the map used inside chains."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(whitening.field("float64"))(np.eye(whitening.n_latent))).T


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("n_seen", [1, 3, 20, 30])
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


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("n_seen", [3, 20, 30])
def test_both_at_once_are_the_same_and_the_map_is_made_once(name, n_seen, monkeypatch):
    whitening = whiten(PRIORS[name], np.random.default_rng(n_seen).choice(30, n_seen, replace=False))
    expected, made, one = (whitening.matrix(EVERY), whitening.std(EVERY)), [], type(whitening).matrix
    monkeypatch.setattr(type(whitening), "matrix", lambda *a: made.append(1) or one(*a))
    for found, apart in zip(whitening.conditional(EVERY), expected, strict=True):
        assert np.array_equal(found, apart)
    assert len(made) == 1


def test_the_cheapest_reduction_is_chosen():
    few, many = np.arange(3), np.arange(20)
    assert isinstance(whiten(PRIORS["project"], few), OnLabels)
    assert isinstance(whiten(PRIORS["project"], many), OnModes)
    assert isinstance(whiten(PRIORS["approximate"], few), OnLabels)
    assert isinstance(whiten(PRIORS["approximate"], many), OnModesAndLabels)
    assert isinstance(whiten(PRIORS["matern_tail"], many), OnModesAndLabels)
    assert isinstance(whiten(PRIORS["full"], EVERY), OnModes)
    assert isinstance(whiten(PRIORS["matern_tail"], EVERY), OnModesAndLabels)
    assert isinstance(whiten(PRIORS["approximate"], EVERY), OnModesAndLabels)  # its covariance is singular


@pytest.mark.parametrize("name", ["approximate", "matern_tail"])
def test_a_new_row_follows_nodes_that_are_all_seen(name):
    """Cov(u_x, u) and Var(u_x) of `NewRows`, but for what u = 0 along the removed mode cannot tell."""
    prior = PRIORS[name]
    at_x = np.random.default_rng(0).standard_normal((4, prior.n_modes)) / 6
    whitening, excess = whiten(prior, EVERY), np.maximum(prior.variances - prior.tail_variance, 0)
    K = whitening.matrix(NewRows(at_x))
    np.testing.assert_allclose(K @ dense_map(whitening).T, (at_x * excess) @ prior.vectors.T, atol=1e-13)
    variance = (K**2).sum(1) + whitening.std(NewRows(at_x)) ** 2
    np.testing.assert_allclose(variance, at_x**2 @ excess + prior.tail_variance)


@pytest.mark.filterwarnings("ignore:Not converged")
def test_ginzburg_landau_runs_under_the_approximate_prior():
    """It sees every node, and C is singular."""
    model = GinzburgLandau([0, 7], [0, 1])
    posterior = sample(PRIORS["approximate"], model, PCN(), n_steps=20, n_warmup=5, n_chains=2, seed=0)
    q0 = PRIORS["approximate"].vectors[:, 0]
    assert abs(posterior.latent(EVERY) @ q0).max() < 1e-5  # where the prior has no variance u stays zero


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


def test_a_singular_block_with_a_tail_is_no_trouble():
    """Every node is seen, a kept mode has less variance than the tail, and along q_0 there is none."""
    spectrum = random_spectrum()
    prior, seen = approximate(spectrum, n_modes=10, lambda_bar=0.05), np.arange(30)[::-1]
    assert np.linalg.matrix_rank(dense_covariance(prior)) == 29
    whitening, dense = whiten(prior, seen), dense_covariance(prior)
    assert isinstance(whitening, OnLabels)
    assert whitening.n_latent == 29
    B, K = dense_map(whitening), whitening.matrix(EVERY)
    np.testing.assert_allclose(B @ B.T, dense[np.ix_(seen, seen)], atol=1e-13)
    np.testing.assert_allclose(K[seen], B, atol=1e-13)
    assert np.all(whitening.std(EVERY) == 0)
    at_x = np.random.default_rng(0).standard_normal((4, 10)) / 6
    cross = (at_x * (prior.variances - prior.tail_variance)) @ prior.vectors.T
    cross -= np.outer(cross @ prior.vectors[:, 0], prior.vectors[:, 0])  # of which u = 0 says nothing
    np.testing.assert_allclose(whitening.matrix(NewRows(at_x)) @ B.T, cross[:, seen], atol=1e-13)
    y = (spectrum.vectors[seen, 1] > 0).astype(int)
    assert GaussianPosterior.of(prior, Probit(seen, y)).diagnostics().converged


def test_nodes_outside_the_graph_are_refused():
    with pytest.raises(ValueError, match="Node 30 is not in the graph"):
        whiten(PRIORS["full"], np.array([1, 30]))
