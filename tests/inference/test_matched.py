"""The largest of correlated fields by independent ones, against integrals and many points."""

import numpy as np
import pytest

from graphuq.inference.largest import (
    independent_probability,
    largest_probability,
    largest_probability_correlated,
    largest_probability_matched,
)
from graphuq.inference.star_ep import propagate
from graphuq.inference.stars import StarSites, lone_stars
from tests.oracles import largest_by_points, probit_sites


def fields(n_classes, seed=0, n=30, n_labels=24):
    """Means and covariances as expectation propagation makes them: labels of each class on smooth fields."""
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((n_labels + n, 12)) * 3 * 0.7 ** np.arange(12)
    y = np.arange(n_labels) % n_classes
    fit = propagate(factor[:n_labels], StarSites(y, n_classes, 1.0))
    at = factor[n_labels:]
    cross = np.einsum("nr,krs,lts,nt->nkl", at @ fit.basis, fit.shared, fit.shared, at @ fit.basis)
    alone = np.square(np.einsum("nr,krs->nks", at @ fit.basis, fit.alone)).sum(axis=2)
    cross += alone[:, :, None] * np.eye(n_classes)
    return at @ fit.z_mean.T, np.ones(n), cross


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_equal_variances_and_equal_correlations_are_exact(n_classes):
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(0, 2, (50, n_classes)), rng.uniform(0.5, 3, 50)
    exact = largest_probability(mean, np.sqrt(variance))
    alike = rng.uniform(0, 5, 50)[:, None, None] * np.ones((n_classes, n_classes))
    for cross in (np.zeros_like(alike), alike):
        np.testing.assert_allclose(largest_probability_matched(mean, variance, cross), exact, atol=3e-4)


@pytest.mark.parametrize(("factor", "error"), [(4, 3e-4), (12, 2e-3)])
def test_unequal_variances_against_a_fine_grid(factor, error):
    rng = np.random.default_rng(2)
    mean, s = rng.normal(0, 2, (30, 5)), factor ** rng.uniform(-0.5, 0.5, (30, 5))
    y = np.linspace(-25, 25, 20_001)
    t = (y - mean[..., None]) / s[..., None]
    from scipy.special import log_ndtr

    log_each = log_ndtr(t)
    log_density = -(t**2) / 2 - np.log(s[..., None] * np.sqrt(2 * np.pi))
    exact = np.exp(log_each.sum(axis=1, keepdims=True) - log_each + log_density).sum(axis=2) * (y[1] - y[0])
    np.testing.assert_allclose(independent_probability(mean, s**2), exact, atol=error)


def test_three_fields_have_the_right_differences():
    rng = np.random.default_rng(3)
    mean = rng.normal(0, 1, (40, 3))
    root = np.eye(3) + 0.15 * rng.standard_normal((40, 3, 3))
    cross = root @ root.swapaxes(1, 2)
    exact = largest_probability_correlated(mean, np.zeros(40), cross)
    found = largest_probability_matched(mean, np.zeros(40), cross)
    assert np.sqrt(np.mean((found - exact) ** 2)) < 3e-3


@pytest.mark.parametrize("n_classes", [5, 10])
def test_as_good_as_many_points_on_posteriors(n_classes):
    problem = fields(n_classes)
    exact = largest_by_points(*problem, n_points=2048)
    matched = largest_probability_matched(*problem)
    np.testing.assert_array_equal(largest_probability_correlated(*problem), matched)
    points = largest_by_points(*problem, n_points=64)
    error, other = (np.sqrt(np.mean((found - exact) ** 2)) for found in (matched, points))
    assert error < 0.006
    assert error < 1.5 * other
    # a twin: fields taken as independent as they are would be far off
    alone = problem[2] * np.eye(n_classes)
    wrong = largest_probability_matched(problem[0], problem[1], alone)
    assert np.sqrt(np.mean((wrong - exact) ** 2)) > 2 * error


def test_without_deviation_the_largest_has_it_all_and_rows_do_not_depend_on_others():
    mean = np.array([[1.0, 0, 0, 0], [2, 2, 0, 0], [0.3, 0.1, 0, -1]])
    found = independent_probability(mean, np.array([[0.0] * 4, [0.0] * 4, [1.0] * 4]))
    np.testing.assert_allclose(found[:2], [[1, 0, 0, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(found[2:], independent_probability(mean[2:], np.ones((1, 4))))
    many = np.tile(mean[2], (1500, 1))
    np.testing.assert_allclose(independent_probability(many, np.ones((1500, 4))), np.tile(found[2], (1500, 1)))
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_the_sites_of_one_label_are_those_of_all_sweeps(n_classes):
    """One label alone, on a prior of mean zero: expectation propagation has no others to take into account."""
    sites = StarSites(np.array([1]), n_classes, 0.5)
    whole = propagate(np.array([[1.5, 0.4]]), sites)
    covariance = (1.5**2 + 0.4**2 + 0.5) * np.eye(n_classes)[None]
    precision, shift = lone_stars(sites, np.zeros((1, n_classes)), covariance)
    np.testing.assert_allclose(precision, whole.precision, atol=1e-3)
    np.testing.assert_allclose(shift, whole.shift, atol=1e-3)


def test_the_site_of_one_label_of_two_classes_matches_moments():
    sites = probit_sites(np.array([1.0]), 0.5)
    fit = sites.fit(np.array([[1.5, 0.4]]))
    precision, shift = fit.first_sites(probit_sites(np.array([-1.0]), 0.5), np.array([[0.3, 1.0]]), np.zeros(1))
    mean, variance = (each[:, 0] for each in fit.field_moments(np.array([[0.3, 1.0]]), np.zeros(1)))
    u = np.linspace(-12, 12, 100_001)
    from scipy.special import ndtr

    tilted = np.exp(-((u - mean) ** 2) / (2 * variance)) * ndtr(-u / 0.5)
    tilted /= tilted.sum()
    first, second = tilted @ u, tilted @ u**2
    after = 1 / (1 / variance + precision)
    np.testing.assert_allclose(after, second - first**2, rtol=1e-5)
    np.testing.assert_allclose(after * (mean / variance + shift), first, rtol=1e-5)
