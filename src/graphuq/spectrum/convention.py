"""What every spectrum has in common: an exact null space, ascending values, fixed signs, known residuals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from graphuq._expect import SettingError, expect_whole
from graphuq.laplacian import Laplacian
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]

# Entries this close to the largest count as equal to it, so that rounding does not decide a sign.
_TIE = 1e-6


def check_n_modes(n_modes: int, largest: int, what: str = "the nodes of the graph") -> None:
    """Refuse a number of modes that does not exist."""
    if not 1 <= expect_whole(n_modes, "n_modes", least=-(10**9)) <= largest:
        raise SettingError("n_modes", f"must lie between 1 and {largest}, {what}, got {n_modes}.")


def null_space(L: Laplacian) -> Array:
    """The eigenvectors of eigenvalue 0, in closed form: one for each connected component.

    ``D^{1/2} 1`` on the component and zero elsewhere, normalized to length one, for the normalized
    Laplacian (Sec. 2.1); the indicator of the component for ``D - A``. Components are in the order of
    their first nodes. Shape (n_nodes, n_components).
    """
    root = np.sqrt(L.degrees) if L.is_normalized else np.ones_like(L.degrees)
    component = np.zeros(root.size, dtype=int)
    if L.n_components > 1:
        component = connected_components(L.matrix, directed=False)[1]
    Z = np.zeros((root.size, L.n_components))
    Z[np.arange(root.size), component] = root
    return Z / np.linalg.norm(Z, axis=0)


def signs(vectors: Array) -> Array:
    """What makes the entry of largest absolute value of each column positive; among equals the first decides."""
    peak = (1 - _TIE) * np.maximum(vectors.max(axis=0), -vectors.min(axis=0))
    leader = np.argmax((vectors >= peak) | (vectors <= -peak), axis=0)
    return np.sign(vectors[leader, np.arange(vectors.shape[1])])


def assemble(
    L: Laplacian, Z: Array, values: Array, vectors: Array, method: str, residuals: Array | None = None
) -> Spectrum:
    """The null space and the other eigenpairs, in ascending order, as one checked Spectrum."""
    if residuals is None:
        residuals = np.linalg.norm(L.matrix @ vectors - vectors * values, axis=0)
    residuals = np.concatenate([np.linalg.norm(L.matrix @ Z, axis=0), residuals])
    values = np.concatenate([np.zeros(Z.shape[1]), np.maximum(values, 0.0)])
    vectors = np.concatenate([Z, vectors], axis=1)
    vectors *= signs(vectors)
    return Spectrum(
        values=values,
        vectors=vectors,
        residuals=residuals,
        degrees=L.degrees,
        n_components=L.n_components,
        normalized=L.is_normalized,
        method=method,
    )
