"""The map from z to the labeled nodes in; an orthonormal basis of the directions of z that matter there out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Span(NamedTuple):
    """A factorization ``B = at basis^T``, up to a remainder that is treated as noise."""

    basis: Matrix  # orthonormal columns, (n_latent, k)
    at: Matrix  # (n_labeled, k)
    cut: Vector  # variance of the remainder at an average label, by coordinate of z, (n_latent,)


def span(factor: Matrix, negligible: float = 0.0) -> Span:
    """Find the directions of z that matter at the labels, k <= min(n_labeled, n_latent).

    With many labels and a smooth prior, most directions have almost no variance at any label. Those whose combined
    variance at an average label is at most `negligible` are dropped; their contribution to u counts as noise.
    """
    n_labeled, n_latent = factor.shape
    wide = n_labeled < n_latent
    if negligible > 0:
        values, vectors = eigh(factor @ factor.T if wide else factor.T @ factor, check_finite=False)
        kept = np.cumsum(values) > negligible * n_labeled
        kept[-1] = True
        values, vectors = values[kept], vectors[:, kept]
        basis = factor.T @ (vectors / np.sqrt(values)) if wide else vectors
        cut = (np.square(factor).sum(axis=0) - np.square(basis) @ values) / n_labeled
        return Span(basis, vectors * np.sqrt(values) if wide else factor @ vectors, np.maximum(cut, 0))
    if not wide:
        return Span(np.eye(n_latent), factor, np.zeros(n_latent))
    basis, triangle = (np.asarray(x, float) for x in qr(factor.T, mode="economic", check_finite=False))
    return Span(basis, np.ascontiguousarray(triangle.T), np.zeros(n_latent))
