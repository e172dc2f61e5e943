"""Expectation propagation against closed forms, quadrature, a textbook version and finite differences."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr

from graphuq.inference import marginals
from graphuq.inference.ep import propagate
from graphuq.inference.marginals import labeled_probability, sign_probability
from graphuq.inference.sites import Sites
from tests.oracles import (
    SITES,
    dense_covariance,
    exact_label_mean,
    four_priors,
    probit_sites,
    random_spectrum,
    signed_cdf,
)


def likelihood(kind, y, gamma):
    """P(y | u) from its definition."""
    if kind == "probit":
        return lambda u: ndtr(y * u / gamma)
    wrong = np.exp(-2 / gamma**2)
    return lambda u: np.where(y * u >= 0, 1.0, wrong) / (1 + wrong)


def problem(n_labeled, n_latent, *, seed=0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(n_labeled, n_latent)) * np.linspace(1.5, 0.2, n_latent)
    return B, np.where(B @ rng.normal(size=n_latent) + 0.3 * rng.normal(size=n_labeled) >= 0, 1.0, -1.0)


def moments(density):
    """Log mass, mean and variance on the line, the jump at zero an end of both integrals."""
    parts = [
        sum(quad(lambda u, n=n: u**n * density(u), *e, epsabs=0, epsrel=1e-12)[0] for e in ((-15, 0), (0, 15)))
        for n in range(3)
    ]
    mean = parts[1] / parts[0]
    return np.log(parts[0]), mean, parts[2] / parts[0] - mean**2


@pytest.mark.parametrize("gamma", [0.4, 1.3])
@pytest.mark.parametrize("kind", SITES)
def test_one_label_is_exact(kind, gamma):
    result = propagate(np.array([[0.9, -0.8]]), SITES[kind](np.array([-1.0]), gamma))
    variance = 0.9**2 + 0.8**2
    at = likelihood(kind, -1.0, gamma)
    log_z, mean, spread = moments(
        lambda u: at(u) * np.exp(-(u**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    )
    found = [result.log_evidence, result.mean[0], result.variance[0]]
    np.testing.assert_allclose(found, [log_z, mean, spread], rtol=1e-10)
    np.testing.assert_allclose(result.log_predictive, result.log_evidence, rtol=1e-12)
    up = quad(lambda u: at(u) * np.exp(-(u**2) / (2 * variance)), 0, 15)[0]
    down = quad(lambda u: at(u) * np.exp(-(u**2) / (2 * variance)), -15, 0)[0]
    np.testing.assert_allclose(labeled_probability(result), up / (up + down), rtol=1e-8)


@pytest.mark.parametrize("k", [-3000.0, -45.0, -31.0, -29.0, -8.0, 0.5, 6.0])
def test_tilted_moments_far_in_the_tail(k):
    def weight(t, n):
        return t**n * np.exp(k * t - t**2 / 2 if k < 0 else -((t - k) ** 2) / 2)

    end = min(40.0, 800 / abs(k)) if k < 0 else k + 12
    m0, m1, m2 = (quad(weight, 0, end, args=(n,), epsabs=0, epsrel=1e-12, limit=200)[0] for n in range(3))
    mean, variance = m1 / m0, m2 / m0 - (m1 / m0) ** 2
    match = Sites(np.ones(1), 0.0, -np.inf).match(np.array([k]), np.ones(1))
    found = 1 / (1 + match.precision)
    np.testing.assert_allclose(found, variance, rtol=1e-6)
    np.testing.assert_allclose(found * (k + match.shift), mean, rtol=1e-6)


@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("nodes", [(4, 21), (4, 21, 9)])
@pytest.mark.parametrize("name", ["full", "approximate"])  # opposite labels on nodes not almost the same
def test_few_labels_against_orthant_probabilities(name, nodes, kind):
    C = dense_covariance(four_priors(random_spectrum(seed=2))[name])
    y, gamma = np.array([1.0, -1.0, -1.0])[: len(nodes)], 0.8
    others = [0, 15, 26]
    values, vectors = np.linalg.eigh(C)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    result = propagate(factor[list(nodes)], SITES[kind](y, gamma))
    block = C[np.ix_(nodes, nodes)]
    if kind == "probit":
        evidence = np.log(signed_cdf(y, block + gamma**2 * np.eye(len(nodes))))
    else:
        wrong = np.exp(-2 / gamma**2)
        sides = np.array(list(np.ndindex(*(2,) * len(nodes))))
        orthants = [signed_cdf(y * (1 - 2 * side), block) for side in sides]
        evidence = np.log(np.sum(wrong ** sides.sum(axis=1) * orthants)) - len(nodes) * np.log1p(wrong)
    assert abs(result.log_evidence - evidence) < 0.01
    if len(nodes) == 3:  # label means would need orthants in four dimensions, which have no closed form
        return
    exact = [exact_label_mean(C, nodes, y, node, **{f"{kind}_gamma": gamma}) for node in (*nodes, *others)]
    found = np.concatenate([labeled_probability(result), sign_probability(result, factor[others])])
    np.testing.assert_allclose(2 * found - 1, exact, atol=0.02)


def textbook(C, y, gamma, n_sweeps=200):
    """Sequential EP for probit with dense matrices: Rasmussen and Williams, Algorithm 3.5 and (3.65)."""
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    sigma, mu = C.copy(), np.zeros(n)
    for _ in range(n_sweeps):
        for i in range(n):
            width = 1 / (1 / sigma[i, i] - tau[i])
            center = width * (mu[i] / sigma[i, i] - nu[i])
            sd = np.sqrt(gamma**2 + width)
            k = y[i] * center / sd
            ratio = np.exp(-(k**2) / 2 - log_ndtr(k)) / np.sqrt(2 * np.pi)
            mean = center + y[i] * width * ratio / sd
            variance = width - (width / sd) ** 2 * ratio * (k + ratio)
            change = 1 / variance - 1 / width - tau[i]
            tau[i] += change
            nu[i] = mean / variance - center / width
            sigma -= change / (1 + change * sigma[i, i]) * np.outer(sigma[:, i], sigma[i])
            mu = sigma @ nu
    width = 1 / (1 / np.diag(sigma) - tau)
    center = width * (mu / np.diag(sigma) - nu)
    total, target = C + np.diag(1 / tau), nu / tau
    evidence = -np.linalg.slogdet(total)[1] / 2 - target @ np.linalg.solve(total, target) / 2
    evidence += log_ndtr(y * center / np.sqrt(gamma**2 + width)).sum() + np.log(width + 1 / tau).sum() / 2
    return mu, np.diag(sigma), evidence + np.sum((center - target) ** 2 / (2 * (width + 1 / tau)))


@pytest.mark.parametrize(("n_labeled", "n_latent"), [(12, 30), (30, 12)])
def test_agrees_with_a_textbook_version(n_labeled, n_latent):
    B, y = problem(n_labeled, n_latent)
    result = propagate(B, probit_sites(y, 0.5), tolerance=1e-12)
    mean, variance, evidence = textbook(B @ B.T, y, 0.5)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(result.log_evidence, evidence, rtol=1e-9)


@pytest.mark.parametrize("kind", SITES)
def test_dense_and_low_rank_algebra_agree(kind):
    B, y = problem(40, 15)
    sites = SITES[kind](y, 1.0)
    low_rank = propagate(B, sites, tolerance=1e-12)
    dense = propagate(np.hstack([B, np.zeros((40, 50))]), sites, tolerance=1e-12)
    assert low_rank.converged
    assert dense.converged
    for name in ("mean", "variance", "cavity_mean", "cavity_variance", "log_evidence"):
        np.testing.assert_allclose(getattr(dense, name), getattr(low_rank, name), rtol=1e-10)
    np.testing.assert_allclose(dense.z_mean[:15], low_rank.z_mean, atol=1e-10)
    cut = dense.gaussian().factor[:15]
    expected = low_rank.gaussian().factor
    np.testing.assert_allclose(cut @ cut.T, expected @ expected.T, atol=1e-10)


@pytest.mark.parametrize("kind", SITES)
def test_a_tail_is_one_more_coordinate_for_each_label(kind):
    B, y = problem(14, 6)
    short = propagate(B, SITES[kind](y, 0.9, tail=0.3), tolerance=1e-12)
    long = propagate(np.hstack([B, np.sqrt(0.3) * np.eye(14)]), SITES[kind](y, 0.9), tolerance=1e-12)
    for name in ("mean", "variance", "cavity_mean", "cavity_variance", "log_predictive", "log_evidence"):
        np.testing.assert_allclose(getattr(short, name), getattr(long, name), rtol=1e-9)
    np.testing.assert_allclose(short.z_mean, long.z_mean[:6], atol=1e-10)
    np.testing.assert_allclose(labeled_probability(short), labeled_probability(long), rtol=1e-9)


@pytest.mark.parametrize("shape", [(24, 50), (50, 24)])
def test_the_posterior_of_z_gives_that_of_u(shape):
    B, y = problem(*shape)
    result = propagate(B, probit_sites(y, 0.5), tolerance=1e-12)
    mean, variance = marginals.moments(result, B)
    np.testing.assert_allclose(mean, result.mean, rtol=1e-9)
    np.testing.assert_allclose(variance, result.variance, rtol=1e-9)
    L = result.gaussian().factor
    precision = np.eye(shape[1]) + B.T @ (result.precision[:, None] * B)
    np.testing.assert_allclose(L @ L.T @ precision, np.eye(shape[1]), atol=1e-9)
    wide = np.array([0.0, 1.0, 2.0])
    mean, wide_variance = marginals.moments(result, B[:3], wide)
    np.testing.assert_allclose(wide_variance - variance[:3], [0, 1, 4], atol=1e-12)
    np.testing.assert_allclose(sign_probability(result, B[:3], wide), ndtr(mean / np.sqrt(wide_variance)))


@pytest.mark.parametrize("kind", SITES)
def test_flipped_labels_flip_means(kind):
    B, y = problem(10, 25)
    one, other = (propagate(B, SITES[kind](sign * y, 0.7), tolerance=1e-12) for sign in (1, -1))
    np.testing.assert_allclose(one.mean, -other.mean, rtol=1e-9)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-9)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(labeled_probability(one), 1 - labeled_probability(other), atol=1e-10)


def test_probit_meets_level_set_as_gamma_falls():
    B, y = problem(10, 25)
    probit, level_set = (propagate(B, make(y, 1e-4)) for make in SITES.values())
    np.testing.assert_allclose(probit.mean, level_set.mean, rtol=1e-5)
    np.testing.assert_allclose(probit.log_evidence, level_set.log_evidence, rtol=1e-5)


@pytest.mark.parametrize("tail", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(8, 12), (25, 6)])
@pytest.mark.parametrize("kind", SITES)
def test_evidence_gradient_against_differences(kind, shape, tail):
    q, y = problem(*shape)
    log_v = np.linspace(-0.5, 0.5, shape[1])

    def fit(log_v, tail, gamma):
        result = propagate(q * np.exp(log_v / 2), SITES[kind](y, gamma, tail=tail), tolerance=1e-13)
        assert result.converged
        return result

    def slope(at, h=1e-3):
        near, far = (at(h).log_evidence - at(-h).log_evidence, at(2 * h).log_evidence - at(-2 * h).log_evidence)
        return (8 * near - far) / (12 * h)

    gradient = fit(log_v, tail, 1.2).gradient()
    by_v = [slope(lambda e, i=i: fit(log_v + e * np.eye(shape[1])[i], tail, 1.2)) for i in range(shape[1])]
    np.testing.assert_allclose(gradient.log_variances, by_v, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(gradient.gamma, slope(lambda e: fit(log_v, tail, 1.2 + e)), rtol=1e-6)


@pytest.mark.parametrize("kind", SITES)
def test_a_warm_start_takes_fewer_sweeps_to_the_same_end(kind):
    B, y = problem(60, 100)
    cold = propagate(B, SITES[kind](y, 0.6))
    warm = propagate(1.01 * B, SITES[kind](y, 0.6), start=cold)
    again = propagate(1.01 * B, SITES[kind](y, 0.6))
    assert warm.n_sweeps < again.n_sweeps
    np.testing.assert_allclose(warm.mean, again.mean, rtol=1e-6)


@pytest.mark.parametrize("gamma", [1e-3, 1e-6])
@pytest.mark.parametrize("kind", SITES)
def test_hard_labels_give_finite_answers(kind, gamma):
    B, _ = problem(12, 30)
    separable = np.where(B @ np.linspace(1, -1, 30) >= 0, 1.0, -1.0)
    opposite = np.vstack([B, B[:1]])
    cases = {
        "separable": (B, separable),
        "one label": (B[:1], np.ones(1)),
        "one class": (B, np.ones(12)),
        "twins": (opposite, np.append(np.ones(12), -1.0)),
    }
    for matrix, y in cases.values():
        result = propagate(matrix, SITES[kind](y, gamma))
        gradient = result.gradient()
        for value in (result.mean, result.variance, result.log_evidence, labeled_probability(result), *gradient):
            assert np.isfinite(value).all()
        assert (result.variance >= 0).all()


def test_labels_that_cannot_be_explained_are_reported():
    B, _ = problem(150, 3)
    y = np.where(np.random.default_rng(1).random(150) < 0.5, 1.0, -1.0)
    result = propagate(B, SITES["level_set"](y, 0.1))
    assert not result.converged
    assert np.isfinite(result.log_evidence)


def test_leave_one_out_against_exact_ratios():
    C = np.array([[1.0, 0.6], [0.6, 1.5]])
    y, gamma = np.array([1.0, -1.0]), 0.7
    result = propagate(np.linalg.cholesky(C), probit_sites(y, gamma))
    both = signed_cdf(y, C + gamma**2 * np.eye(2))
    np.testing.assert_allclose(result.log_predictive, np.log(both / 0.5), atol=0.01)  # P(y_j) = 1/2 alone


@pytest.mark.parametrize("kind", SITES)
def test_leaps_end_where_plain_sweeps_do_and_sooner(kind, monkeypatch):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(60, 30)) * 0.8 ** np.arange(30) * 3
    y = np.sign(B[:, 0] + 0.3 * rng.normal(size=60))
    leaping = propagate(B, SITES[kind](y, 0.6), tolerance=1e-9)
    monkeypatch.setattr("graphuq.inference.sweeps.CLOSE", 0.0)
    monkeypatch.setattr("graphuq.inference.sweeps.MOST_SHIFTS", 0)
    plain = propagate(B, SITES[kind](y, 0.6), tolerance=1e-9)
    assert leaping.converged
    assert plain.converged
    assert leaping.n_sweeps < 0.75 * plain.n_sweeps
    np.testing.assert_allclose(leaping.mean, plain.mean, atol=1e-7)
    assert leaping.log_evidence == pytest.approx(plain.log_evidence, abs=1e-9)


def test_a_label_that_looks_like_a_mistake_seldom_keeps_the_sweeps_from_settling():
    """The fixed point may repel single sweeps: which of these settle depends on rounding, but most do."""
    n_settled = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(-1, 1, 30))
        covariance = 100 * np.exp(-((x[:, None] - x) ** 2) / 0.5)
        y = np.where(x > 0, 1.0, -1.0)
        wrong = rng.integers(30)
        y[wrong] *= -1
        sites = Sites(y, 1.0, float(np.log(0.003)))
        found = propagate(np.linalg.cholesky(covariance + 1e-6 * np.eye(30)), sites, tolerance=1e-6, max_sweeps=60)
        n_settled += found.n_sweeps <= 60
        if (
            found.converged
        ):  # at a fixed point every site turns what is left without it into a Gaussian of the same moments
            again = sites.match(found.cavity_mean, found.cavity_variance)
            assert again.precision * found.variance == pytest.approx(found.precision * found.variance, abs=1e-5)
            assert again.shift == pytest.approx(found.shift, abs=1e-4)
    assert n_settled >= 20


def test_a_label_where_nothing_is_believed_changes_nothing():
    """At a row of zeros u is 0 for sure, whatever its label; the labels of others count as without it."""
    B = np.random.default_rng(0).normal(size=(4, 3))
    y = np.array([-1.0, 1.0, 1.0, -1.0])
    with_it = propagate(np.vstack([B, np.zeros(3)]), probit_sites(np.append(y, 1.0), 0.1), tolerance=1e-10)
    without = propagate(B, probit_sites(y, 0.1), tolerance=1e-10)
    np.testing.assert_allclose(with_it.z_mean, without.z_mean, atol=1e-8)
    assert with_it.log_evidence == pytest.approx(without.log_evidence + np.log(0.5), abs=1e-8)
