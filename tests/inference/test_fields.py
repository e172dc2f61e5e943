"""Draws of what z leaves open, against the dense conditional Gaussian."""

import numpy as np
import pytest

from graphuq.inference.fields import left_open
from graphuq.inference.whiten import whiten
from tests.oracles import dense_covariance, four_priors, random_spectrum

PRIORS = four_priors(random_spectrum())
SEEN, ROWS = np.array([2, 11, 17]), np.array([4, 11, 0, 29, 8])  # one of the rows is seen: its covariance is 0


@pytest.mark.parametrize("name", PRIORS)
def test_what_z_leaves_open_has_the_conditional_covariance(name):
    """Applied to the identity it returns a root of the covariance, and it is the same root for every draw and field."""
    prior = PRIORS[name]
    dense, eye = dense_covariance(prior), np.eye(len(ROWS))
    root = left_open(whiten(prior, SEEN), ROWS, eye)
    gain = dense[np.ix_(ROWS, SEEN)] @ np.linalg.inv(dense[np.ix_(SEEN, SEEN)])
    expected = dense[np.ix_(ROWS, ROWS)] - gain @ dense[np.ix_(SEEN, ROWS)]
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-12)
    normal = np.random.default_rng(0).standard_normal((2, 6, len(ROWS), 3))
    found = left_open(whiten(prior, SEEN), ROWS, normal)
    np.testing.assert_allclose(found, root @ normal, atol=1e-12)
    single = left_open(whiten(prior, SEEN), ROWS, normal.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, found, atol=1e-5)
