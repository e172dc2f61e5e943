"""The map from z to the labeled nodes in; the directions of z that labels see, and what the others leave as noise, out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Span(NamedTuple):
    """What labels see of z: ``B = at basis^T``, but for a rest that is as small as noise."""

    basis: Matrix  # orthonormal columns, (n_latent, k)
    at: Matrix  # (n_labeled, k)
    cut: Vector  # variance that the rest leaves at an average label, for each coordinate of z, (n_latent,)


def span(factor: Matrix, negligible: float = 0.0) -> Span:
    """The directions of z that matter, k <= min(n_labeled, n_latent).

    Where many labels see a smooth function, most directions have next to no variance at any of them. As many as have
    `negligible` together are left out; what they add to u then counts as noise.
    """
    n_labeled, n_latent = factor.shape
    wide = n_labeled < n_latent
    if negligible > 0:
        values, turn = eigh(factor @ factor.T if wide else factor.T @ factor, check_finite=False)
        kept = np.cumsum(values) > negligible * n_labeled
        kept[-1] = True
        values, turn = values[kept], turn[:, kept]
        basis = factor.T @ (turn / np.sqrt(values)) if wide else turn
        cut = (np.square(factor).sum(axis=0) - np.square(basis) @ values) / n_labeled
        return Span(basis, turn * np.sqrt(values) if wide else factor @ turn, np.maximum(cut, 0))
    if not wide:
        return Span(np.eye(n_latent), factor, np.zeros(n_latent))
    basis, triangle = (np.asarray(x, float) for x in qr(factor.T, mode="economic", check_finite=False))
    return Span(basis, np.ascontiguousarray(triangle.T), np.zeros(n_latent))
