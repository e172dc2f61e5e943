"""Rows that were not in the graph: the law of u there, against dense conditional Gaussians."""

import numpy as np
import pytest

from graphuq import prior as priors
from graphuq.inference.whiten import whiten
from graphuq.models import Probit
from graphuq.new_rows import NewRows
from graphuq.posterior import GaussianPosterior
from graphuq.prior import GaussianPrior
from tests.oracles import dense_covariance, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum(seed=3))
SEEN = {"few": np.array([2, 11, 17]), "many": np.arange(0, 30, 2)}


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("name", PRIORS)
def test_an_unseen_node_given_as_new_has_the_same_law_twice(name, seen):
    prior, nodes = PRIORS[name], SEEN[seen]
    unseen = np.setdiff1d(np.arange(30), nodes)
    whitening, new = whiten(prior, nodes), NewRows(prior.vectors[unseen])
    z = np.random.default_rng(0).standard_normal((5, whitening.n_latent))
    np.testing.assert_allclose(whitening.mean(z, new), whitening.mean(z, unseen), atol=1e-12)
    np.testing.assert_allclose(whitening.matrix(new), whitening.matrix(unseen), atol=1e-12)
    np.testing.assert_allclose(whitening.std(new), whitening.std(unseen), atol=1e-12)
    np.testing.assert_allclose(prior.marginal_variance(new), prior.marginal_variance(unseen), atol=1e-12)


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("name", PRIORS)
def test_the_law_at_a_new_row_is_the_conditional_gaussian(name, seen):
    """Given z: E[u_x | u_seen] and Var[u_x | u_seen] from the covariance in the docstring, by a dense solve."""
    prior, nodes = PRIORS[name], SEEN[seen]
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(4, prior.n_modes)) / np.sqrt(30)
    believed = np.arange(prior.n_modes) < prior.n_modes - 2
    whitening, new = whiten(prior, nodes), NewRows(vectors, believed)
    weights = prior.variances - prior.tail_variance
    rows = np.where(believed, vectors, 0)
    cross = (rows * weights) @ prior.vectors[nodes].T
    own = prior.tail_variance + weights[~believed].clip(0).sum() / 30
    total = np.square(rows) @ weights + own
    matrix, at_labels = whitening.matrix(new), whitening.matrix(nodes)
    # Both, whatever z is made of: the covariance with u at the labels, and the variance that is left.
    np.testing.assert_allclose(matrix @ at_labels.T, cross, atol=1e-10)
    np.testing.assert_allclose(np.square(matrix).sum(axis=1) + whitening.std(new) ** 2, total, atol=1e-10)
    if seen == "few":  # z is u at the labels
        gain = cross @ np.linalg.inv(prior.covariance(nodes, nodes))
        np.testing.assert_allclose(matrix, gain @ at_labels, atol=1e-9)
        np.testing.assert_allclose(whitening.std(new) ** 2, total - (gain * cross).sum(axis=1), atol=1e-10)


@pytest.mark.parametrize("name", ["project", "matern"])
def test_a_least_variance_is_filled_up(name):
    """max(least, sum_j v_j q_j(x)^2), with least a quantile of the same sum at the nodes."""
    prior, nodes = PRIORS[name], SEEN["few"]
    vectors = prior.vectors[[5, 6, 7]] * np.array([[0.0], [0.1], [5.0]])
    exact, filled = (whiten(prior, nodes).std(NewRows(vectors, least_quantile=q)) for q in (None, 0.25))
    least = np.quantile(np.diag(dense_covariance(prior)), 0.25)
    expected = np.square(exact) + np.maximum(least - np.square(vectors) @ prior.variances, 0)
    np.testing.assert_allclose(np.square(filled), expected, atol=1e-12)
    assert expected[0] == pytest.approx(least)
    assert filled[2] == pytest.approx(exact[2])


def test_a_row_far_from_all_others_is_unsure():
    prior = priors.matern(random_spectrum(seed=3), tau=0.4, alpha=2.0, n_modes=8)
    found = GaussianPosterior.of(prior, Probit(np.arange(0, 30, 3), np.arange(10) % 3, gamma=0.2))
    far = NewRows(np.zeros((1, 8)), least_quantile=0.25)
    np.testing.assert_allclose(found.probability(far), 1 / 3, atol=1e-6)
    assert found.probability(NewRows(prior.vectors[:1])).max() > 0.6


def test_rows_may_have_more_columns_than_the_prior_has_modes_and_come_in_parts():
    prior = PRIORS["project"]
    whitening = whiten(prior, SEEN["few"])
    vectors = PRIORS["full"].vectors[[5, 6, 7]]
    whole = whitening.matrix(NewRows(vectors))
    np.testing.assert_allclose(whole, whitening.matrix(np.array([5, 6, 7])), atol=1e-12)
    rows = NewRows(vectors, np.arange(30) != 3, 0.1)
    assert len(rows) == 3
    np.testing.assert_allclose(whitening.matrix(rows.part(slice(1, 3))), whitening.matrix(rows)[1:], atol=1e-14)
    np.testing.assert_allclose(whitening.std(rows.part(slice(1, 3))), whitening.std(rows)[1:], atol=1e-14)


@pytest.mark.parametrize("vectors", [np.ones((2, 5)), np.ones(8)])
def test_rows_with_too_few_columns_are_refused(vectors):
    with pytest.raises(ValueError, match="need 8 columns"):
        whiten(PRIORS["project"], SEEN["few"]).matrix(NewRows(vectors))


@pytest.mark.parametrize(("first", "added"), [(0, 5.0), (2, 5.0), (4, 0.0)])
def test_beyond_its_reach_a_row_has_the_variance_of_an_unknown_slope(first, added):
    """Columns of all rows: two bent ones, two linear ones, two of the graph; a prior has those from its first on."""
    variances = np.array([7.0, 7.0, 5.0, 5.0, 3.0, 2.0])
    vectors = np.random.default_rng(0).standard_normal((9, 6))
    prior = GaussianPrior(vectors[:, first:], variances[first:], first=first)
    near, far = (NewRows(vectors[:3], beyond=np.array([0.0, x, 4 * x]), slope=2) for x in (0.0, 0.25))
    np.testing.assert_array_equal(prior.own_variance(near), 0)
    np.testing.assert_allclose(prior.own_variance(far), [0, 0.25 * added, added])
