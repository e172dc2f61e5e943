"""The eigenpairs of a graph Laplacian, with what is needed to trust, extend and store them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import archive
from graphuq._expect import expect_path, expect_whole

FORMAT = "graphuq spectrum 2"
_ARRAYS = ("values", "vectors", "residuals", "degrees")


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The first eigenpairs of a Laplacian L: ``L q_j = lambda_j q_j`` (2.3).

    Attributes:
        values: eigenvalues in ascending order, shape (n_modes,); the first is exactly 0.
        vectors: orthonormal eigenvectors as columns, shape (n_nodes, n_modes), each with its
            largest entry in absolute value positive.
        residuals: ``|L q_j - lambda_j q_j|``, shape (n_modes,).
        degrees: row sums of the weights, shape (n_nodes,).
        n_components: connected components of the graph.
        normalized: whether L is the symmetric normalized Laplacian (2.1) or ``D - A``.
        method: how the eigenpairs were computed.
        rest: the common value of every eigenvalue not listed, where that is known exactly
            (1 for low-rank weights), else None.
    """

    values: NDArray[np.float64] = field(repr=False)
    vectors: NDArray[np.float64] = field(repr=False)
    residuals: NDArray[np.float64] = field(repr=False)
    degrees: NDArray[np.float64] = field(repr=False)
    n_components: int
    normalized: bool
    method: str
    rest: float | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return self.vectors.shape[0]

    @property
    def n_modes(self) -> int:
        """Number of eigenpairs kept, q_0 included."""
        return self.values.shape[0]

    def truncate(self, n_modes: int) -> Spectrum:
        """The first `n_modes` eigenpairs; what is known of the rest is forgotten."""
        if not 1 <= expect_whole(n_modes, "n_modes", least=0) <= self.n_modes:
            raise ValueError(
                f"n_modes must lie between 1 and {self.n_modes}, the modes of this spectrum, got {n_modes}."
            )
        if n_modes == self.n_modes:
            return self
        return replace(
            self,
            values=self.values[:n_modes],
            vectors=self.vectors[:, :n_modes],
            residuals=self.residuals[:n_modes],
            rest=None,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, whole or not at all."""
        facts, arrays = self.pack()
        archive.write(expect_path(path), FORMAT, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Spectrum:
        """Read what `save` wrote. Nothing in the file is executed."""
        facts, arrays = archive.read(expect_path(path), FORMAT, "a spectrum")
        found: dict[str, Any] = {**arrays, **facts}
        return cls(**found)

    def pack(self) -> tuple[dict[str, Any], archive.Arrays]:
        """Everything as facts and arrays, by the names of the attributes."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}
        return facts, {name: getattr(self, name) for name in _ARRAYS}
