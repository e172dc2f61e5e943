from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from graphuq import GaussianPosterior, graph, laplacian, prior, spectrum
from graphuq.inference.ep import propagate
from graphuq.inference.marginals import FEW_ROWS, MANY_ROWS, labeled_probability, moments, sign_probability
from graphuq.models import LevelSet
from tests.oracles import SITES, probit_sites

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_one_label_has_its_closed_form(gamma):
    """Two signs agree with probability 1/2 + asin(correlation) / pi."""
    label, nodes = RNG.normal(size=(1, 6)), RNG.normal(size=(40, 6))
    result = propagate(label, probit_sites(np.ones(1), gamma), tolerance=1e-12)
    norms = np.linalg.norm(nodes, axis=1) * np.sqrt(label @ label.T + gamma**2).item()
    exact = 0.5 + np.arcsin((nodes @ label.T)[:, 0] / norms) / np.pi
    np.testing.assert_allclose(sign_probability(result, nodes), exact, atol=1e-4)


@pytest.mark.parametrize("gamma", [1e-3, 0.01, 0.03, 0.1, 1.0])
def test_one_label_is_a_step_for_nodes_that_all_but_coincide_with_it(gamma):
    """Nodes of every correlation with it; evenly spaced points, or half as many, are off by up to 2e-3."""
    correlation = np.array([0.3, 0.9, 0.99, 0.999, 0.9999, 1.0])
    nodes = np.column_stack([correlation, np.sqrt(1 - correlation**2)])
    result = propagate(np.array([[1.0, 0.0]]), probit_sites(np.ones(1), gamma), tolerance=1e-12)
    exact = 0.5 + np.arcsin(correlation / np.sqrt(1 + gamma**2)) / np.pi
    np.testing.assert_allclose(sign_probability(result, nodes), exact, atol=2e-4)


def test_one_label_of_level_set_has_its_closed_form():
    label, nodes, gamma = RNG.normal(size=(1, 6)), RNG.normal(size=(40, 6)), 0.9
    result = propagate(label, SITES["level_set"](-np.ones(1), gamma), tolerance=1e-12)
    cosine = (nodes @ label.T)[:, 0] / np.linalg.norm(nodes, axis=1) / np.linalg.norm(label)
    wrong = 1 / (1 + np.exp(2 / gamma**2))
    same = 0.5 + np.arcsin(cosine) / np.pi
    exact = wrong * same + (1 - wrong) * (1 - same)
    np.testing.assert_allclose(sign_probability(result, nodes), exact, atol=1e-4)


def test_labels_that_are_one_value_leave_half_a_gaussian():
    """Five labels see multiples of u, as under a very smooth prior: the posterior of u is known."""
    B = np.zeros((5, 3))
    B[:, 0] = [1.0, 0.8, 1.2, -0.9, -1.1]
    y, gamma = np.sign(B[:, 0]), 0.3
    result = propagate(B, probit_sites(y, gamma), tolerance=1e-12)

    def density(z):
        return np.exp(log_ndtr(y * B[:, 0] * z / gamma).sum()) * norm.pdf(z)

    exact = quad(density, 0, 8)[0] / (quad(density, 0, 8)[0] + quad(density, -8, 0)[0])
    nodes = [[1.0, 0.0, 0.0], [-0.5, 0.0, 0.0]]
    np.testing.assert_allclose(sign_probability(result, nodes), [exact, 1 - exact], atol=1e-4)
    mean, variance = moments(result, nodes)
    assert abs(ndtr(mean[0] / np.sqrt(variance[0])) - exact) > 0.01  # the Gaussian of the same moments


@pytest.mark.parametrize("seed", range(3))
def test_few_labels_on_a_smooth_prior_are_closer_to_exact_draws(seed):
    """Weighted draws from the Gaussian are exact; the marginals of the Gaussian itself are twice as far off."""
    rng = np.random.default_rng(seed)
    factor = np.linalg.qr(rng.normal(size=(60, 20)))[0] * np.sqrt(60 * 0.5 ** np.arange(1, 21))
    B, others, gamma = factor[:6], factor[6:], 0.1
    result = propagate(B, probit_sites(np.where(B[:, 0] > 0, 1.0, -1.0), gamma), tolerance=1e-12)
    reference = result.gaussian()
    zeta = rng.standard_normal((40_000, 20))
    z = reference.mean + zeta @ reference.factor.T
    log_w = log_ndtr(result.sites.y * (z @ B.T) / gamma).sum(axis=1) + (zeta**2 - z**2).sum(axis=1) / 2
    weights = np.exp(log_w - log_w.max())
    exact = weights @ (z @ others.T >= 0) / weights.sum()
    error = np.abs(sign_probability(result, others) - exact).mean()
    assert error < 0.01
    mean, variance = moments(result, others)
    assert error < np.abs(ndtr(mean / np.sqrt(variance)) - exact).mean() / 2


@pytest.mark.parametrize("make", list(SITES.values()), ids=list(SITES))
def test_labeled_nodes_are_as_their_tilted_distribution(make):
    """Labels that see little of each other: at its own node the correction is the tilted distribution."""
    B = np.eye(6) + 0.05 * RNG.normal(size=(6, 6))
    result = propagate(B, make(np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0]), 0.8), tolerance=1e-12)
    np.testing.assert_allclose(sign_probability(result, B), labeled_probability(result), atol=5e-3)


def test_where_u_is_0_for_certain_either_sign_is_as_probable():
    result = propagate(np.eye(3), probit_sites(np.array([1.0, -1.0, 1.0]), 0.5))
    np.testing.assert_array_equal(sign_probability(result, np.zeros((2, 3))), [0.5, 0.5])


@pytest.mark.parametrize("flip", [0.0, 1e-60, 0.01])
def test_many_rows_are_corrected_as_each_is_alone(flip):
    rng = np.random.default_rng(5)
    sites = replace(probit_sites(np.sign(rng.normal(size=7)), 0.3), log_flip=np.log(flip) if flip else -np.inf)
    result = propagate(rng.normal(size=(7, 9)), sites, tolerance=1e-10)
    nodes = rng.normal(size=(MANY_ROWS + 100, 9))
    together = sign_probability(result, nodes)
    for rows in (slice(0, 1), slice(MANY_ROWS - 10, MANY_ROWS + 10), slice(-FEW_ROWS - 5, None)):
        np.testing.assert_allclose(sign_probability(result, nodes[rows]), together[rows], atol=1e-6)


def test_contradictory_labels_that_leave_no_variance_have_finite_answers():
    """Level-set on a nearly constant prior: sites of opposite labels pin u to 0 with a variance of 1e-170."""
    points = np.random.default_rng(0).standard_normal((40, 2))
    S = spectrum.dense(laplacian.normalized(graph.gaussian(points, tau=1.0)))
    model = LevelSet(np.arange(6), np.arange(6) % 2, gamma=0.06)
    found = GaussianPosterior.of(prior.matern(S, tau=1e-3, alpha=30), model)
    assert not found.diagnostics().converged
    probability = found.probability()
    assert np.all((probability > 0) & (probability < 1))
