import numpy as np
import pytest

from graphuq.models import GinzburgLandau

NODES, Y, GAMMA = np.array([0, 3]), np.array([1.0, -1.0]), 0.7
MATRIX = np.random.default_rng(0).normal(size=(12, 5))


def model(epsilon, y=Y):
    return GinzburgLandau(NODES, y, gamma=GAMMA, epsilon=epsilon)


def without_wells(matrix):
    """Precision and mean of Gaussian regression on the labels."""
    precision = np.eye(5) + matrix[NODES].T @ matrix[NODES] / GAMMA**2
    return precision, np.linalg.solve(precision, matrix[NODES].T @ Y / GAMMA**2)


def covariance(gaussian):
    return gaussian.factor @ gaussian.factor.T


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_harmonic_well_has_the_mean_curvature_of_the_double_well(epsilon):
    found = model(epsilon).reference(MATRIX)
    added = np.linalg.inv(covariance(found)) - without_wells(MATRIX)[0]
    kappa = added[0, 0] / (MATRIX.T @ MATRIX)[0, 0]
    np.testing.assert_allclose(added, kappa * MATRIX.T @ MATRIX, atol=1e-8 * (1 + kappa))
    rng = np.random.default_rng(1)
    v = (found.mean + rng.normal(size=(200_000, 5)) @ found.factor.T) @ MATRIX.T
    curvature = (3 * v**2 - 1) / epsilon
    error = curvature.mean(axis=1).std() / np.sqrt(len(v))
    assert abs(curvature.mean() - kappa) < 5 * error
    assert kappa > 10 * error


def test_without_wells_it_is_gaussian_regression():
    precision, mean = without_wells(MATRIX)
    found = model(1e12).reference(MATRIX)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(covariance(found), np.linalg.inv(precision), rtol=1e-6, atol=1e-9)


def test_a_well_that_pushes_outward_is_left_out():
    """A prior narrower than the distance to the wells: a negative curvature would be no Gaussian."""
    narrow = 0.1 * MATRIX
    found = model(1e-3).reference(narrow)
    np.testing.assert_allclose(np.linalg.inv(covariance(found)), without_wells(narrow)[0], atol=1e-10)


def test_flipped_labels_flip_the_mean():
    up, down = model(1.0).reference(MATRIX), model(1.0, -Y).reference(MATRIX)
    np.testing.assert_allclose(up.mean, -down.mean)
    np.testing.assert_allclose(covariance(up), covariance(down))
