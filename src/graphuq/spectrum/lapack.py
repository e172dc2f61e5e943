"""A Laplacian in; all its eigenpairs, or the first few, by LAPACK, out."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh

from graphuq._expect import expect, expect_count
from graphuq._threads import eigen_threads
from graphuq.laplacian import Laplacian
from graphuq.memory import check_room
from graphuq.spectrum.result import Spectrum, assemble, null_space


def dense(L: Laplacian, *, n_modes: int | None = None) -> Spectrum:
    """All eigenpairs of L (2.3), or the first `n_modes`, from one dense eigenproblem.

    The null space Z is known in closed form. LAPACK gets ``L + s Z Z^T`` with s above the spectrum, which shifts Z
    out of the way: the other eigenvectors are then orthogonal to Z up to rounding, however small the spectral gap.
    Time grows as N^3 and memory as N^2: 2,000 nodes take about a second.
    """
    expect(L, Laplacian, "L", "a Laplacian, as laplacian.normalized(graph) makes")
    n_nodes = L.degrees.size
    what = "the nodes of the graph"
    n_modes = n_nodes if n_modes is None else expect_count(n_modes, "n_modes", n_nodes, what)
    n_other = n_modes - L.n_components
    if n_other <= 0:
        return assemble(L, null_space(L, n_modes), np.empty(0), np.empty((n_nodes, 0)), "null space")
    check_room(
        3 * 8 * n_nodes**2,
        f"LAPACK, with matrices of {n_nodes:,} x {n_nodes:,} numbers,",
        "Use spectrum.leading with fewer modes than a third of the nodes.",
    )
    Z = null_space(L)
    above = 3.0 if L.normalized else 3 * L.degrees.max()  # above the largest eigenvalue, 2 or twice the degree
    shifted = (above * Z) @ Z.T
    shifted += L.matrix if isinstance(L.matrix, np.ndarray) else L.matrix.toarray()
    chosen: Any = {"driver": "evd"} if n_modes == n_nodes else {"subset_by_index": [0, n_other - 1]}
    with eigen_threads(n_nodes):
        values, vectors = eigh(shifted.T, overwrite_a=True, check_finite=False, **chosen)
    return assemble(L, Z, values[:n_other], vectors[:, :n_other], "dense")
