import numpy as np
import pytest

from graphuq import laplacian
from graphuq.spectrum.convention import null_space, signs

from .problems import complete, ring, side_by_side


def test_the_largest_entry_is_positive():
    vectors = np.array([[1.0, -3.0, 0.0], [-2.0, 1.0, -1.0]])
    vectors *= signs(vectors)
    np.testing.assert_array_equal(vectors, [[-1.0, 3.0, 0.0], [2.0, -1.0, 1.0]])


@pytest.mark.parametrize("noise", [0.0, 1e-15, -1e-15])
def test_among_equals_the_first_decides_whatever_the_rounding(noise):
    vectors = np.array([[0.1], [-1.0], [1.0 + noise]])
    vectors *= signs(vectors)
    assert vectors[1] > 0 > vectors[2]


def test_null_space_of_interleaved_components():
    """Nodes of two components in turn: each vector lives on one, in the order of the first nodes."""
    A = side_by_side(complete(5), ring(4)).toarray()
    order = [5, 0, 6, 1, 7, 2, 8, 3, 4]
    Z = null_space(laplacian.normalized(A[np.ix_(order, order)]))
    np.testing.assert_array_equal(Z[:, 0] > 0, [1, 0, 1, 0, 1, 0, 1, 0, 0])
    np.testing.assert_array_equal(Z[:, 1] > 0, [0, 1, 0, 1, 0, 1, 0, 1, 1])
    np.testing.assert_allclose(np.linalg.norm(Z, axis=0), 1, atol=1e-15)
