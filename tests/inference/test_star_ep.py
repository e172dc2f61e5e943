"""Expectation propagation for many classes against one field, dense algebra, simulation and finite differences."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr

from graphuq.inference import covariances, ep, star_ep
from graphuq.inference.sites import Sites
from graphuq.inference.star_ep import propagate
from graphuq.inference.stars import StarSites
from graphuq.inference.sweeps import Start

FLIPS = [-np.inf, np.log(0.05)]
# Many labels on few modes go by modes, the others by nodes: (n_labeled, n_classes, n_latent).
SHAPES = [(14, 3, 25), (30, 3, 6)]


def problem(n_labeled, n_classes, n_latent, *, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n_labeled, n_latent)) / np.arange(1, n_latent + 1)
    fields = B @ rng.normal(size=(n_latent, n_classes)) + noise * rng.normal(size=(n_labeled, n_classes))
    return B, fields.argmax(axis=1)


class Dense(NamedTuple):
    """The Gaussian of given sites, as matrices over all fields and nodes."""

    z_mean: np.ndarray
    z_covariance: np.ndarray
    log_evidence: float
    log_predictive: np.ndarray
    cavities: list  # of u at each node without its sites
    residual: float  # how far the sites are from those that their cavities ask for


def dense(B, sites, precision, shift, *, noise_counted=1.0):
    """From the definition: g of all nodes and classes, one rank-one term for every half-space."""
    (n, r), K = B.shape, sites.n_classes
    noise = noise_counted * sites.noise
    prior = np.kron(np.eye(K), B @ B.T + noise * np.eye(n))
    pairs = [(i, k) for i in range(n) for k in range(K) if k != sites.labels[i]]
    A = np.zeros((len(pairs), K * n))
    for row, (i, k) in enumerate(pairs):
        A[row, sites.labels[i] * n + i], A[row, k * n + i] = 1, -1
    node = np.array([i for i, _ in pairs])
    tau, nu = (np.array([each[pair] for pair in pairs]) for each in (precision, shift))
    likelihood = Sites(np.ones(1), 0.0, sites.log_flip)

    def gauss(keep):
        """log of the integral of prior and sites, and the posterior of d."""
        T, v, rows = np.diag(tau[keep]), nu[keep], A[keep]
        D = rows @ prior @ rows.T
        kernel = np.linalg.solve(np.eye(len(v)) + D @ T, np.column_stack([D, D @ v]))
        return (
            (v @ kernel[:, -1] - np.linalg.slogdet(np.eye(len(v)) + D @ T)[1]) / 2,
            kernel[:, -1],
            kernel[:, :-1],
        )

    everything = np.ones(len(pairs), bool)
    log_gauss, mean, covariance = gauss(everything)
    left = 1 - tau * covariance.diagonal()
    width = covariance.diagonal() / left
    center = (mean - covariance.diagonal() * nu) / left
    match = likelihood.match(center, width)
    grown = 1 + width * tau
    log_site = np.log(grown) / 2 - (2 * center * nu + width * nu**2 - center**2 * tau) / (2 * grown)
    delta, ranks = np.exp(sites.log_flip), np.arange(K)
    heights = match.log_z + log_site
    total = np.log(np.sum(delta**ranks * (1 - delta) ** ranks[::-1]))
    # u = (I_K x B) z, and g = u + noise.
    lift = np.kron(np.eye(K), B)
    R = A.T @ np.linalg.solve(np.eye(len(tau)) + np.diag(tau) @ A @ prior @ A.T, np.diag(tau) @ A)
    b = A.T @ (nu - tau * mean)
    cavities, log_predictive = [], []
    for i in range(n):
        others = node != i
        log_rest, mean_rest, _ = gauss(others)
        log_predictive.append(heights[~others].sum() - total + log_gauss - log_rest)
        rows, T = A[others], np.diag(tau[others])
        K0 = lift @ lift.T
        R_rest = rows.T @ np.linalg.solve(np.eye(others.sum()) + T @ rows @ prior @ rows.T, T @ rows)
        at = K0[i::n]
        cavities.append((at @ (rows.T @ (nu[others] - tau[others] * mean_rest)), at[:, i::n] - at @ R_rest @ at.T))
    deviation = np.sqrt(covariance.diagonal())
    return Dense(
        z_mean=(lift.T @ b).reshape(K, r),
        z_covariance=np.eye(K * r) - lift.T @ R @ lift,
        log_evidence=heights.sum() + log_gauss - n * total,
        log_predictive=np.array(log_predictive),
        cavities=cavities,
        residual=np.abs((match.shift - nu - (match.precision - tau) * mean) * deviation).max(),
    )


def assert_same(result, B, oracle, tolerance):
    scale = max(1.0, np.abs(oracle.z_mean).max())
    np.testing.assert_allclose(result.z_mean, oracle.z_mean, atol=tolerance * scale)
    fitted = result.gaussian()
    np.testing.assert_allclose(fitted.mean, oracle.z_mean.ravel(), atol=tolerance * scale)
    np.testing.assert_allclose(fitted.factor @ fitted.factor.T, oracle.z_covariance, atol=tolerance)
    np.testing.assert_allclose(result.log_evidence, oracle.log_evidence, rtol=tolerance)
    np.testing.assert_allclose(result.log_predictive, oracle.log_predictive, atol=10 * tolerance)
    left = result.left_out
    for i, (mean, covariance) in enumerate(oracle.cavities):
        np.testing.assert_allclose(left.mean[i], mean, atol=10 * tolerance * scale)
        found = left.variance[i] * np.eye(len(mean)) + left.cross[i]
        np.testing.assert_allclose(found, covariance, atol=10 * tolerance)


@pytest.mark.parametrize("max_sweeps", [1, 3, 200])
@pytest.mark.parametrize("gamma", [0.0, 1e-3, 0.3, 10.0])
@pytest.mark.parametrize("log_flip", FLIPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_dense_algebra_of_the_same_sites(shape, log_flip, gamma, max_sweeps):
    B, labels = problem(*shape)
    sites = StarSites(labels, shape[1], gamma**2, log_flip)
    result = propagate(B, sites, max_sweeps=max_sweeps)
    oracle = dense(B, sites, result.precision, result.shift)
    assert_same(result, B, oracle, 1e-9)
    assert (oracle.residual < 1e-6) == result.converged == (max_sweeps == 200)
    if gamma > 0.1:  # the test sees noise that is counted twice
        wrong = dense(B, sites, result.precision, result.shift, noise_counted=2.0)
        with pytest.raises(AssertionError):
            assert_same(result, B, wrong, 1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_sites_that_widen_and_nearly_singular_covariances(shape):
    B, labels = problem(*shape, noise=1.0)
    B = B * 10.0 ** -np.arange(B.shape[1])
    B[1] = B[0]
    sites = StarSites(labels, shape[1], 0.01, np.log(0.2))
    result = propagate(B, sites)
    assert result.converged
    assert result.precision.min() < -1e-3
    assert_same(result, B, dense(B, sites, result.precision, result.shift), 1e-9)


@pytest.mark.parametrize("gamma", [1e-3, 0.4, 10.0])
@pytest.mark.parametrize("log_flip", FLIPS)
@pytest.mark.parametrize("shape", [(12, 2, 30), (40, 2, 8)])
def test_two_classes_are_the_difference_of_two_fields(shape, log_flip, gamma):
    B, labels = problem(*shape)
    two = propagate(B, StarSites(labels, 2, gamma**2, log_flip), tolerance=1e-10)
    one = ep.propagate(np.sqrt(2) * B, Sites(2.0 * labels - 1, 2 * gamma**2, log_flip), tolerance=1e-10)
    assert two.converged
    assert one.converged
    np.testing.assert_allclose(two.log_evidence, one.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(two.log_predictive, one.log_predictive, atol=1e-6)
    np.testing.assert_allclose((two.z_mean[1] - two.z_mean[0]) / np.sqrt(2), one.z_mean, atol=1e-6)
    difference = np.array([-1, 1])
    at = two.fields_at(B, np.zeros(len(B)))
    np.testing.assert_allclose(at.mean @ difference, one.mean, atol=1e-6)
    np.testing.assert_allclose(2 * at.variance + difference @ at.cross @ difference, one.variance, atol=1e-6)


def probability(sites, g):
    """P(labels | g) of many draws of g, shape (n_draws, n_labeled, n_classes), from the definition by ranks."""
    own = np.take_along_axis(g, sites.labels[None, :, None], axis=2)
    rank = (g > own).sum(axis=2)
    ratio = np.exp(sites.log_flip) / (1 - np.exp(sites.log_flip))
    return np.prod(ratio**rank / np.sum(ratio ** np.arange(sites.n_classes)), axis=1)


@pytest.mark.parametrize("log_flip", FLIPS)
@pytest.mark.parametrize("n_labeled", [3, 5])
def test_evidence_against_simulation(n_labeled, log_flip):
    B, labels = problem(n_labeled, 3, 4, seed=3)
    sites = StarSites(labels, 3, 0.3**2, log_flip)
    rng = np.random.default_rng(0)
    g = np.swapaxes(rng.normal(size=(200_000, 3, 4)) @ B.T, 1, 2) + 0.3 * rng.normal(size=(200_000, n_labeled, 3))
    weights = probability(sites, g)
    error = weights.std() / weights.mean() / np.sqrt(len(weights))
    assert error < 0.03
    assert abs(propagate(B, sites).log_evidence - np.log(weights.mean())) < 0.05 + 5 * error


@pytest.mark.parametrize("log_flip", FLIPS)
def test_all_labelings_have_probability_one(log_flip):
    B, _ = problem(3, 3, 10)
    every = [
        propagate(B, StarSites(np.array(labels), 3, 0.09, log_flip)) for labels in product(range(3), repeat=3)
    ]
    assert abs(sum(np.exp(each.log_evidence) for each in every) - 1) < 0.01


@pytest.mark.parametrize(("n_classes", "error"), [(2, 1e-12), (3, 0.002), (5, 0.006), (10, 0.012), (32, 0.023)])
def test_one_label_can_be_any_class(n_classes, error):
    result = propagate(np.ones((1, 1)), StarSites(np.zeros(1, int), n_classes, 0.25))
    assert abs(result.log_evidence + np.log(n_classes)) < error
    np.testing.assert_allclose(result.log_predictive, result.log_evidence, rtol=1e-12)


@pytest.mark.parametrize("log_flip", FLIPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_the_evidence(shape, log_flip):
    B, labels = problem(*shape)
    gamma, step = 0.4, 1e-4

    def fit(log_variances=0.0, gamma=gamma, log_flip=log_flip):
        sites = StarSites(labels, shape[1], gamma**2, log_flip, noise_slope=2 * gamma)
        return propagate(B * np.exp(np.asarray(log_variances) / 2), sites, tolerance=1e-11)

    def slope(**settings):
        """Central differences, the first argument's direction and size in `settings`."""
        ends = [fit(**{k: base + s * step * way for k, (base, way) in settings.items()}) for s in (1, -1)]
        return (ends[0].log_evidence - ends[1].log_evidence) / (2 * step)

    result = fit()
    gradient = result.gradient()
    for j in (0, 1, shape[2] - 1):
        np.testing.assert_allclose(
            gradient.log_variances[j], slope(log_variances=(0.0, np.eye(shape[2])[j])), atol=1e-6
        )
    np.testing.assert_allclose(gradient.gamma, slope(gamma=(gamma, 1.0)), atol=1e-6)
    if log_flip > -np.inf:
        np.testing.assert_allclose(gradient.log_flip, slope(log_flip=(log_flip, 1.0)), atol=1e-6)


@pytest.mark.parametrize("log_flip", FLIPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_permuted_classes_and_nodes_permute_results(shape, log_flip):
    B, labels = problem(*shape)
    rng = np.random.default_rng(1)
    classes, nodes = rng.permutation(shape[1]), rng.permutation(shape[0])
    one = propagate(B, StarSites(labels, shape[1], 0.1, log_flip), tolerance=1e-11)
    other = propagate(B[nodes], StarSites(classes[labels[nodes]], shape[1], 0.1, log_flip), tolerance=1e-11)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(one.log_predictive[nodes], other.log_predictive, atol=1e-8)
    np.testing.assert_allclose(one.z_mean, other.z_mean[classes], atol=1e-8)
    np.testing.assert_allclose(one.left_out.mean[nodes], other.left_out.mean[:, classes], atol=1e-8)


@pytest.mark.parametrize("log_flip", FLIPS)
def test_both_computations_agree(log_flip, monkeypatch):
    B, labels = problem(60, 4, 8)
    sites = StarSites(labels, 4, 0.1, log_flip, noise_slope=1.0)
    by_modes = propagate(B, sites, tolerance=1e-11)
    monkeypatch.setattr(star_ep, "QUICKER_BY_MODES", 0)
    by_nodes = propagate(B, sites, tolerance=1e-11)
    assert by_modes.alone.size == 0 < by_nodes.alone.size
    for name in ("precision", "shift", "log_predictive", "z_mean", "log_evidence"):
        np.testing.assert_allclose(getattr(by_modes, name), getattr(by_nodes, name), rtol=1e-8, atol=1e-8)
    for one, other in zip(by_modes.gradient(), by_nodes.gradient(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    for one, other in zip(by_modes.fields_at(B, B[:, 0]), by_nodes.fields_at(B, B[:, 0]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_moments_at_nodes_are_those_of_z(shape, monkeypatch):
    B, labels = problem(*shape)
    result = propagate(B, StarSites(labels, shape[1], 0.1))
    rng = np.random.default_rng(2)
    M, deviation = rng.normal(size=(9, shape[2])), rng.uniform(0, 2, 9)
    found = result.fields_at(M, deviation)
    z = result.gaussian()
    for i, row in enumerate(M):
        lift = np.kron(np.eye(shape[1]), row)
        half = lift @ z.factor
        np.testing.assert_allclose(found.mean[i], lift @ z.mean, atol=1e-10)
        covariance = half @ half.T + deviation[i] ** 2 * np.eye(shape[1])
        np.testing.assert_allclose(found.variance[i] * np.eye(shape[1]) + found.cross[i], covariance, atol=1e-10)
    # alone is what no label touches: what lies outside the span of the labels' rows, and the deviation
    untouched = M - M @ np.linalg.pinv(B) @ B
    np.testing.assert_allclose(found.variance, np.square(untouched).sum(axis=1) + deviation**2, atol=1e-10)
    assert (np.linalg.eigvalsh(found.cross)[:, 0] > -1e-12).all()
    # and of labels left out all that the fields do not have in common
    np.testing.assert_allclose(np.linalg.eigvalsh(result.left_out.cross)[:, 0], 0, atol=1e-12)
    assert (result.left_out.variance >= 0).all()
    monkeypatch.setattr(covariances, "CACHED", 1)
    monkeypatch.setattr(covariances, "LEAST_ROWS", 1)  # one node at a time
    for one, other in zip(found, result.fields_at(M, deviation), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    single, double = (result.fields_at(M.astype(dtype), deviation) for dtype in (np.float32, np.float64))
    for one, other in zip(single, double, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=1e-6 * np.abs(M).max() ** 2 * shape[2])


def test_an_earlier_result_saves_sweeps():
    B, labels = problem(40, 4, 60)
    sites = StarSites(labels, 4, 0.1)
    cold = propagate(B, sites)
    warm = propagate(1.02 * B, sites, start=cold)
    assert warm.n_sweeps < propagate(1.02 * B, sites).n_sweeps
    assert propagate(B, sites, start=Start(cold.precision, cold.shift)).n_sweeps == 1
    old = np.delete(np.arange(40), [3, 17])
    before = propagate(B[old], replace(sites, labels=labels[old]))
    padded = np.zeros((2, 40, 4))
    padded[:, old] = before.precision, before.shift
    added = propagate(B, sites, start=Start(padded[0], padded[1]))
    assert added.n_sweeps < cold.n_sweeps
    np.testing.assert_allclose(added.log_evidence, cold.log_evidence, rtol=1e-9)


@pytest.mark.parametrize("start", [-1e8, 1e8])
def test_a_useless_start_does_no_harm(start):
    B, labels = problem(14, 3, 25)
    sites = StarSites(labels, 3, 0.1)
    result = propagate(B, sites, start=Start(np.where(sites.own().T, 0, start), np.zeros((14, 3))))
    assert result.converged
    np.testing.assert_allclose(result.log_evidence, propagate(B, sites).log_evidence, rtol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("log_flip", [*FLIPS, np.log(1e-4)])
@pytest.mark.parametrize("n_latent", [2, 20])
def test_contradictory_labels_never_give_nan(n_latent, log_flip, gamma):
    B, _ = problem(12, 4, n_latent)
    B[6:] = B[:6]
    sites = StarSites(np.arange(12) % 4, 4, gamma**2, log_flip)  # the two rows of a pair differ by 6, so in class
    result = propagate(B, sites)
    assert result.converged or gamma < 0.01
    for each in (result.z_mean, result.log_predictive, result.log_evidence, *result.left_out):
        assert np.isfinite(each).all()
    assert np.isfinite(result.gaussian().factor).all()
    assert np.isfinite(result.gradient().log_variances).all()


def test_a_class_without_labels():
    B, labels = problem(14, 3, 25)
    result = propagate(B, StarSites(labels, 4, 0.1))
    assert result.converged
    at = result.fields_at(B, np.zeros(14))
    assert (at.mean[np.arange(14), labels] > at.mean[:, 3]).all()


def test_large_fields_decide_as_argmax():
    B, labels = problem(60, 3, 4, noise=0.0)
    result = propagate(10 * B, StarSites(labels, 3, 0.25))
    assert (result.fields_at(B, np.zeros(60)).mean.argmax(axis=1) == labels).mean() > 0.9
    left = result.left_out
    gap = left.mean[np.arange(60), labels][:, None] - left.mean
    assert np.log(ndtr(gap)).sum(axis=1).mean() > np.log(1 / 3)


@pytest.mark.parametrize("flip", [0.0, 0.05])
def test_classes_at_labeled_nodes_are_those_of_weighted_draws(flip):
    """The Gaussian approximation alone, which does not know that labels cut the fields, is off by more than .05."""
    rng = np.random.default_rng(2)
    B, labels, gamma = rng.normal(size=(3, 4)), np.array([0, 1, 2]), 0.2
    sites = StarSites(labels, 3, gamma**2, log_flip=np.log(flip) if flip else -np.inf)
    found = propagate(B, sites, tolerance=1e-9)
    u = np.einsum("jr,skr->sjk", B, rng.normal(size=(400_000, 3, 4)))
    g = u + gamma * rng.normal(size=u.shape)
    weights = sites.relative_likelihood(g.transpose(1, 2, 0)).prod(axis=0)
    exact = (
        np.array([[weights @ (u[:, j].argmax(axis=1) == k) for k in range(3)] for j in range(3)]) / weights.sum()
    )
    assert np.abs(found.labeled_classes() - exact).max() < 0.02
