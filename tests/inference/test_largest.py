"""P(largest field): against quadrature, arcsines of correlations, symmetries, and counts of draws."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr

from graphuq.inference import largest
from graphuq.inference.largest import largest_probability, largest_probability_correlated
from tests.oracles import largest_by_points


def by_quadrature(mean, deviation):
    """The integral for each class by itself, adaptively."""
    m = np.asarray(mean) / deviation

    def integrand(y, k):
        others = log_ndtr(y - np.delete(m, k)).sum()
        return np.exp(-((y - m[k]) ** 2) / 2 + others) / np.sqrt(2 * np.pi)

    def integral(k):
        settings = {"args": (k,), "epsabs": 1e-14, "epsrel": 1e-9, "limit": 200}
        pieces = m.max() + np.array([-20, -6, -3, 0, 3, 12])
        return sum(quad(integrand, low, high, **settings)[0] for low, high in pairwise(pieces))

    return np.array([integral(k) for k in range(len(m))])


def three_correlated(mean, covariance):
    """P(each of three fields is the largest): two differences, one integrated over, the other in closed form."""
    found = []
    for k in range(3):
        difference = np.delete(np.eye(3)[k] - np.eye(3), k, axis=0)
        m, s = difference @ mean, difference @ covariance @ difference.T
        slope, left = s[0, 1] / s[0, 0], np.sqrt(s[1, 1] - s[0, 1] ** 2 / s[0, 0])
        deviation = np.sqrt(s[0, 0])

        def integrand(x, m=m, slope=slope, left=left, deviation=deviation):
            density = np.exp(-(((x - m[0]) / deviation) ** 2) / 2) / (np.sqrt(2 * np.pi) * deviation)
            return density * ndtr((m[1] + slope * (x - m[0])) / left)

        found.append(quad(integrand, 0, max(0, m[0]) + 12 * deviation, epsabs=1e-12, limit=200)[0])
    return np.array(found)


def arcsine(covariance):
    """P(the first field is the largest) of three or four fields of mean 0."""
    difference = np.eye(len(covariance))[0] - np.eye(len(covariance))[1:]
    s = difference @ covariance @ difference.T
    angles = np.arcsin((s / np.sqrt(np.outer(np.diag(s), np.diag(s))))[np.triu_indices(len(s), 1)])
    return 1 / 4 + angles.sum() / (2 * np.pi) if len(s) == 2 else 1 / 8 + angles.sum() / (4 * np.pi)


def covariances(n, n_classes, rank, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n_classes, rank)) / np.sqrt(rank)
    return root @ root.transpose(0, 2, 1)


def posterior_like(n, n_classes, seed=0):
    """Means, a common variance, and the rest: what labels have taught about a few directions of the fields."""
    rng = np.random.default_rng(seed)
    taught = np.eye(n_classes) - 1 / n_classes
    directions = taught @ rng.normal(size=(n, n_classes, 3)) / np.sqrt(n_classes)
    shrunk = np.linalg.inv(np.eye(n_classes) + directions @ directions.transpose(0, 2, 1))
    return rng.normal(size=(n, n_classes)), np.full(n, 0.1), shrunk


def counted(mean, covariance, n_draws=200_000, seed=1):
    """The share of draws in which each field is the largest."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance)
    draws = (
        np.argmax(m + rng.normal(size=(n_draws, len(m))) @ r.T, axis=1) for m, r in zip(mean, root, strict=True)
    )
    return np.stack([np.bincount(draw, minlength=mean.shape[1]) for draw in draws]) / n_draws


def z_score(share, p, n_draws=200_000):
    return np.max(np.abs(share - p) / np.sqrt(p * (1 - p) / n_draws))


def test_two_classes_are_exact_on_both_sides():
    difference = np.linspace(-9, 9, 37)
    p = largest_probability(np.column_stack([np.full(37, 2.0), 2.0 + difference]), np.full(37, 1.5))
    x = difference / (np.sqrt(2) * 1.5)
    np.testing.assert_allclose(p, np.column_stack([ndtr(-x), ndtr(x)]), rtol=1e-12)


def test_the_integral_of_two_classes_is_the_closed_form():
    difference = np.linspace(0, 9, 40)
    with largest.jax.enable_x64(True):
        p = np.asarray(largest._integral(np.stack([0 * difference, -difference])))
    np.testing.assert_allclose((p / p.sum(axis=0))[1], ndtr(-difference / np.sqrt(2)), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("n_classes", [3, 4, 10, 40])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_many_classes_against_quadrature(n_classes, scale):
    mean = scale * np.random.default_rng(n_classes).normal(size=(2, n_classes))
    expected = np.stack([by_quadrature(m, 0.8) for m in mean])
    p = largest_probability(mean, 0.8)
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(p[expected > 1e-10], expected[expected > 1e-10], rtol=1e-4)
    single = largest_probability(mean.astype(np.float32), 0.8)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
def test_equal_means_share_equally(n_classes):
    np.testing.assert_allclose(largest_probability(np.full(n_classes, 3.0), 0.1), 1 / n_classes, rtol=1e-12)


def test_classes_may_be_renamed_and_means_shifted_and_scaled():
    mean = np.random.default_rng(0).normal(size=(20, 5))
    p = largest_probability(mean, 0.7)
    order = np.array([3, 0, 4, 2, 1])
    np.testing.assert_allclose(largest_probability(mean[:, order], 0.7), p[:, order], rtol=1e-12)
    np.testing.assert_allclose(largest_probability(mean + 100, 0.7), p, rtol=1e-10)
    np.testing.assert_allclose(largest_probability(10 * mean, 7.0), p, rtol=1e-12)


def test_a_larger_mean_is_more_probable_and_a_larger_deviation_less_sure():
    mean = np.array([0.0, 0.5, 1.0])
    assert np.all(np.diff(largest_probability(mean, 1.0)) > 0)
    assert np.all(np.diff(largest_probability(np.tile(mean, (9, 1)), np.geomspace(0.1, 10, 9))[:, 2]) < 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_nothing_is_certain_but_where_there_is_no_deviation(n_classes, dtype):
    mean = np.zeros((4, n_classes), dtype)
    mean[:, 0] = [1.0, 30.0, 1e6, 1e30]
    p = largest_probability(mean, np.array([0.1, 1.0, 1e-30, 1e-3]))
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(p.sum(axis=1, dtype=float), 1, atol=1e-6 if dtype == np.float32 else 1e-11)
    assert largest_probability(mean, 0.0).tolist() == np.eye(n_classes)[[0, 0, 0, 0]].tolist()


def test_without_deviation_equal_means_share():
    p = largest_probability([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 1.0]], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(p, [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0]])


def test_shapes_broadcast_and_blocks_do_not_matter(monkeypatch):
    mean = np.random.default_rng(0).normal(size=(7, 300, 4))
    deviation = np.random.default_rng(1).uniform(0.5, 2, 300)
    p = largest_probability(mean, deviation)
    assert p.shape == mean.shape
    np.testing.assert_allclose(p[3, 5], largest_probability(mean[3, 5], deviation[5]), rtol=1e-12)
    monkeypatch.setattr(largest, "BLOCK", 1000)
    np.testing.assert_allclose(largest_probability(mean, deviation), p, rtol=1e-12)
    assert largest_probability(np.zeros((0, 3)), 1.0).shape == (0, 3)


def test_counts_of_independent_draws_and_a_wrong_deviation():
    mean = np.random.default_rng(0).normal(size=(6, 10))
    share = counted(mean, np.tile(0.49 * np.eye(10), (6, 1, 1)))
    assert z_score(share, largest_probability(mean, 0.7)) < 5
    assert z_score(share, largest_probability(mean, 0.75)) > 10


@pytest.mark.parametrize("seed", range(4))
def test_three_correlated_fields_against_quadrature(seed):
    mean, variance, cross = posterior_like(6, 3, seed)
    expected = [three_correlated(m, 0.1 * np.eye(3) + c) for m, c in zip(mean, cross, strict=True)]
    np.testing.assert_allclose(largest_probability_correlated(mean, variance, cross), expected, atol=1e-10)
    harder = covariances(6, 3, 2, seed)  # of rank two: one difference may be known much better than another
    expected = [three_correlated(m, 0.1 * np.eye(3) + c) for m, c in zip(mean, harder, strict=True)]
    np.testing.assert_allclose(largest_probability_correlated(mean, variance, harder), expected, atol=1e-10)


def test_fields_of_mean_zero_have_an_arcsine():
    variance = np.full(20, 0.3)
    three, four = (covariances(20, n_classes, n_classes) for n_classes in (3, 4))
    p = largest_probability_correlated(np.zeros((20, 3)), variance, three)
    np.testing.assert_allclose(p[:, 0], [arcsine(0.3 * np.eye(3) + c) for c in three], rtol=1e-12)
    p = largest_by_points(np.zeros((20, 4)), variance, four, n_points=256)
    np.testing.assert_allclose(p[:, 0], [arcsine(0.3 * np.eye(4) + c) for c in four], atol=3e-3)


def test_two_correlated_fields_are_exact():
    mean, cross = np.array([[0.3, 1.0], [2.0, -1.0]]), covariances(2, 2, 2)
    deviation = np.sqrt(2 * 0.2 + cross[:, 0, 0] + cross[:, 1, 1] - 2 * cross[:, 0, 1])
    p = largest_probability_correlated(mean, np.full(2, 0.2), cross)
    np.testing.assert_allclose(p[:, 1], ndtr((mean[:, 1] - mean[:, 0]) / deviation), rtol=1e-12)


def test_counts_of_correlated_draws_and_a_wrong_covariance():
    mean, variance, cross = posterior_like(6, 10)
    share = counted(mean, 0.1 * np.eye(10) + cross)
    assert z_score(share, largest_by_points(mean, variance, cross, n_points=2**14)) < 5
    assert z_score(share, largest_by_points(mean, variance + 0.1, cross, n_points=2**14)) > 10
    independent = np.sqrt(0.1 + np.trace(cross, axis1=1, axis2=2) / 10)
    assert z_score(share, largest_probability(mean, independent)) > 10


@pytest.mark.parametrize(("n_classes", "rtol", "atol"), [(3, 1e-9, 0), (6, 1e-4, 3e-5)])
def test_what_does_not_change_the_differences_does_not_matter(n_classes, rtol, atol):
    mean, variance, cross = posterior_like(5, n_classes)
    cross = cross + 0.1 * covariances(5, n_classes, n_classes)
    order = np.random.default_rng(0).permutation(n_classes)
    p = largest_probability_correlated(mean, variance, cross)
    common = largest_probability_correlated(mean + 3, variance, cross + 2.0)
    np.testing.assert_allclose(common, p, rtol, atol)
    renamed = largest_probability_correlated(mean[:, order], variance, cross[:, order][:, :, order])
    np.testing.assert_allclose(renamed, p[:, order], rtol, atol)
    split = largest_probability_correlated(mean, np.zeros(5), cross + 0.1 * np.eye(n_classes))
    np.testing.assert_allclose(split, p, rtol, atol)
    independent = largest_probability_correlated(mean, variance, np.full_like(cross, 0.4))
    np.testing.assert_allclose(independent, largest_probability(mean, np.sqrt(variance)), rtol, max(atol, 1e-7))


@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_node_does_not_depend_on_the_others(n_classes):
    mean, variance, cross = posterior_like(9, n_classes)
    cross[3:6] = covariances(3, n_classes, 1)
    cross[6:] = 0
    together = largest_probability_correlated(mean, variance, cross)
    alone = [largest_probability_correlated(mean[i : i + 1], variance[:1], cross[i : i + 1])[0] for i in range(9)]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_a_singular_covariance_without_more_is_taken():
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    p = largest_probability_correlated(mean, np.zeros(8), root[:, :, None] * root[:, None, :])
    x = np.linspace(-8, 8, 100_001)
    winners = np.argmax(mean[:, None] + x[:, None] * root[:, None], axis=2)
    share = np.stack([np.bincount(each, np.exp(-(x**2) / 2), minlength=3) for each in winners])
    np.testing.assert_allclose(p, share / share.sum(axis=1, keepdims=True), atol=1e-4)


def test_three_fields_that_tie_share_and_without_deviation_the_largest_has_it_all():
    mean = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 1.0], [1e30, 0.0, -1e30]])
    certain = largest_probability_correlated(mean, np.zeros(4), np.ones((4, 3, 3)))
    np.testing.assert_array_equal(certain, [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1, 0], [1, 0, 0]])
    nearly = largest_probability_correlated(mean, np.full(4, 1e-30), np.zeros((4, 3, 3)))
    np.testing.assert_allclose(nearly, certain, atol=1e-11)
    assert ((nearly > 0) & (nearly < 1)).all()
