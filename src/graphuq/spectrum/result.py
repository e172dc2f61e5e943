"""Eigenpairs of a graph Laplacian in; a `Spectrum` that can be checked, extended and stored out.

Every spectrum has an exact null space, ascending eigenvalues, fixed signs, and known residuals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import archive
from graphuq._expect import expect_count, expect_path
from graphuq.laplacian import Laplacian

Array = NDArray[np.float64]

FORMAT = "graphuq spectrum 2"
_ARRAYS = ("values", "vectors", "residuals", "degrees")
# Eigenvalues below this fraction of 1, or of the largest degree for D - A, are indistinguishable from zero.
_ZERO = 1e-12
# Entries within this relative distance of the largest count as equal to it, so that rounding decides no sign.
_TIE = 1e-6


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The first eigenpairs of a Laplacian L: ``L q_j = lambda_j q_j`` (2.3).

    Attributes:
        values: eigenvalues in ascending order, shape (n_modes,); the first is exactly 0.
        vectors: orthonormal eigenvectors as columns, shape (n_nodes, n_modes); in each, the entry of largest
            absolute value is positive.
        residuals: ``|L q_j - lambda_j q_j|``, shape (n_modes,).
        degrees: row sums of the weights, shape (n_nodes,).
        n_components: number of connected components of the graph.
        normalized: whether L is the symmetric normalized Laplacian (2.1) or ``D - A``.
        method: how the eigenpairs were computed.
        rest: common value of all eigenvalues not listed, if known exactly (1 for low-rank weights), else None.
    """

    values: Array
    vectors: Array
    residuals: Array
    degrees: Array
    n_components: int
    normalized: bool
    method: str
    rest: float | None = None

    def __repr__(self) -> str:
        return f"Spectrum({self.n_nodes:,} nodes, {self.n_modes:,} modes, {self.n_components:,} components, {self.method})"

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.vectors.shape[0]

    @property
    def n_modes(self) -> int:
        """Number of eigenpairs kept, q_0 included."""
        return self.values.shape[0]

    @property
    def n_zero(self) -> int:
        """Number of eigenvalues that are zero up to rounding, whatever the unit of the weights; at least 1."""
        unit = 1.0 if self.normalized else float(self.degrees.max())
        return int(np.count_nonzero(self.values <= _ZERO * unit))

    def truncate(self, n_modes: int) -> Spectrum:
        """The first `n_modes` eigenpairs; `rest` is dropped."""
        if expect_count(n_modes, "n_modes", self.n_modes, "the modes of this spectrum") == self.n_modes:
            return self
        return replace(
            self,
            values=self.values[:n_modes],
            vectors=self.vectors[:, :n_modes],
            residuals=self.residuals[:n_modes],
            rest=None,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        facts, arrays = self.pack()
        archive.write(expect_path(path), FORMAT, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Spectrum:
        """Read a file written by `save`. Nothing in the file is executed."""
        facts, arrays = archive.read(expect_path(path), FORMAT, "a spectrum")
        attributes: dict[str, Any] = {**arrays, **facts}
        return cls(**attributes)

    def to_zarr(self, path: str | os.PathLike[str], *, progress: bool | None = None) -> Spectrum:
        """Write the eigenvectors to a new Zarr array; return the same spectrum with its rows read from there."""
        from graphuq.large.stores import write_zarr

        rows: Any = write_zarr(self.vectors, path, progress=progress)
        return replace(self, vectors=rows)

    def pack(self) -> tuple[dict[str, Any], archive.Arrays]:
        """All attributes by name: scalars and strings ("facts"), and arrays."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}
        return facts, {name: getattr(self, name) for name in _ARRAYS}


def null_space(L: Laplacian, n_modes: int | None = None) -> Array:
    """Eigenvectors of eigenvalue 0 in closed form, one per connected component, or of the first `n_modes` of these.

    ``D^{1/2} 1`` on the component and zero elsewhere, normalized to length one, for the normalized
    Laplacian (Sec. 2.1); the indicator of the component for ``D - A``. Components are in the order of
    their first nodes. The result has the shape (n_nodes, n_components), or (n_nodes, n_modes).
    """
    n_modes = L.n_components if n_modes is None else n_modes
    root = np.sqrt(L.degrees) if L.normalized else np.ones_like(L.degrees)
    Z, of_first = np.zeros((root.size, n_modes)), np.flatnonzero(L.components < n_modes)
    Z[of_first, L.components[of_first]] = root[of_first]
    return Z / np.linalg.norm(Z, axis=0)


def signs(vectors: Array) -> Array:
    """Sign of the entry of largest absolute value in each column; among equal entries the first decides."""
    peak = (1 - _TIE) * np.maximum(vectors.max(axis=0), -vectors.min(axis=0))
    leader = np.argmax((vectors >= peak) | (vectors <= -peak), axis=0)
    return np.sign(vectors[leader, np.arange(vectors.shape[1])])


def assemble(
    L: Laplacian, Z: Array, values: Array, vectors: Array, method: str, residuals: Array | None = None
) -> Spectrum:
    """Spectrum made of the null space Z and the other eigenpairs, in ascending order, with signs fixed."""
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
        normalized=L.normalized,
        method=method,
    )
