"""Values of a basis at rows that are not nodes in; the rows in the form that priors and posteriors take out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NewRows:
    """Out-of-sample rows, represented by the graph's eigenvectors extended to them.

    The prior extends to a new row x through the values ``q_j(x)`` of the eigenvectors there. Its covariance with
    node i is

        Cov(u_x, u_i) = sum_j (v_j - v_tail) q_j(x) q_j(i),

    as between two nodes. The remaining part of u_x is independent of everything else. Its variance is v_tail, plus
    the average variance per node of the modes without a value at x, plus what is needed to reach the floor
    `least`,

        Var(u_x) = max(least, sum_j (v_j - v_tail) q_j(x)^2) + v_tail + sum_{j without value} (v_j - v_tail) / N.

    A row far from all nodes has small ``q_j(x)``, so the nodes explain almost none of its variance.

    Attributes:
        vectors: the eigenvectors' values at the new rows, shape (n_new, n_modes), from `spectrum.extend`; for a
            learned prior the values of all columns of its basis.
        has_value: mask of the modes whose values are reliable, shape (n_modes,); all by default.
        least_quantile: makes this quantile of the nodes' prior variances the floor `least`, so that a row far from
            all nodes is uncertain. None means no floor.
        beyond: for a prior with columns linear in the features, the squared distance by which each row exceeds the
            reach of the nodes, shape (n_new,); it adds variance because the slope is unknown there.
        slope: index of the first of these columns.
        nearest, share: the nearest node of each row and the degree (0 to 1) to which the row is identified with
            it, shape (n_new,) each, if known.
    """

    vectors: Array
    has_value: NDArray[np.bool_] | bool = True
    least_quantile: float | None = None
    beyond: Array | None = None
    slope: int = 0
    nearest: NDArray[np.int64] | None = None
    share: Array | None = None

    def __repr__(self) -> str:
        return f"NewRows({len(self):,} rows)"

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def values(self) -> Array:
        """`vectors`, with 0 where a value is not reliable."""
        return self.vectors if np.all(self.has_value) else np.where(self.has_value, self.vectors, 0.0)

    def part(self, rows: slice) -> NewRows:
        """A slice of the rows."""
        per_row = {name: getattr(self, name) for name in ("beyond", "nearest", "share")}
        cut: Any = {name: None if value is None else value[rows] for name, value in per_row.items()}
        return replace(self, vectors=self.vectors[rows], **cut)

    def within(self, columns: slice) -> NewRows:
        """The same rows in some of the columns, for a prior that has only these; `beyond` goes with the column `slope`."""
        shape = self.vectors.shape
        if len(shape) != 2 or shape[1] < columns.stop:
            raise ValueError(f"New rows need {columns.stop} columns, one for each mode, got the shape {shape}.")
        has_value = np.broadcast_to(self.has_value, shape[1:])[columns]
        beyond = self.beyond if columns.start <= self.slope else None
        slope = self.slope - columns.start
        return replace(self, vectors=self.vectors[:, columns], has_value=has_value, beyond=beyond, slope=slope)
