"""The block iteration of `chebyshev` on a GPU, where JAX finds one: vectors stay there from filter to rotation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[np.float64]

# Sending a smaller graph there and back takes longer than its eigenvectors take here.
LEAST_NODES = 20_000
# Columns filtered together, to the highest degree that one of them needs.
BLOCK = 64
# A recurrence that grows is scaled by this.
SCALE = float(np.exp(-40.0))


def is_worth_it(matrix: Any) -> bool:
    """Whether the matrix is sparse and large, and there is an accelerator."""
    if isinstance(matrix, np.ndarray) or matrix.shape[0] < LEAST_NODES:
        return False
    import jax

    return jax.default_backend() == "gpu"


class OnAccelerator:
    """What an iteration does with its vectors; numbers and small matrices stay in NumPy.

    Args:
        matrix: L.
        Z: its null space, shape (n_nodes, n_null).
        dtype: of the vectors. Filters are in single precision as long as `chebyshev` says so.
    """

    def __init__(self, matrix: csr_array, Z: Array, dtype: Any) -> None:
        import jax
        from jax.experimental.sparse import BCSR

        jax.config.update("jax_bcoo_cusparse_lowering", True)
        self._jax, self._dtype = jax, dtype
        with self._precise():
            self._single = BCSR.from_scipy_sparse(matrix.astype(np.float32))
            self._exact = self._single if dtype == np.float32 else BCSR.from_scipy_sparse(matrix.astype(dtype))
            self._Z = jax.numpy.asarray(Z, dtype)
            self._filter = jax.jit(partial(_filter, jax))
            self._rotate = jax.jit(_rotate)

    @contextmanager
    def _precise(self) -> Iterator[None]:
        """Doubles where they are asked for, and no products with numbers cut to ten bits."""
        with self._jax.enable_x64(True), self._jax.default_matmul_precision("highest"):
            yield

    def filtered(
        self, vectors: Any, degrees: NDArray[np.int64], rough: NDArray[np.bool_], bounds: tuple[float, float, int]
    ) -> tuple[Any, Any]:
        """The filtered vectors, orthogonal to the null space, and L times them.

        Args:
            vectors: shape (n_nodes, width).
            degrees: of the filter of each.
            rough: whose residual is so large that single precision will do.
            bounds: of the part that is filtered out, and after how many steps to scale.
        """
        jnp, parts = self._jax.numpy, []
        with self._precise():
            for start in range(0, vectors.shape[1], BLOCK):
                columns = slice(start, start + BLOCK)
                operator = self._single if rough[columns].all() else self._exact
                X = jnp.asarray(vectors[:, columns], operator.data.dtype)
                degree = int(degrees[columns].max())
                parts.append(self._filter(operator, self._exact, self._Z, X, degree, *bounds))
            W, LW = (jnp.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return W, LW

    def rotated(
        self, W: Any, LW: Any, solve: Callable[[Array, Array], tuple[Array, Array]]
    ) -> tuple[Any, Array, Array]:
        """The best eigenvectors in the span of W, their values and residuals; `solve` sees W^T W and W^T L W."""
        jnp = self._jax.numpy
        with self._precise():
            try:
                values, U = solve(*_grams(jnp, W, LW))
            except np.linalg.LinAlgError:  # the columns are dependent to rounding
                W = jnp.linalg.qr(W)[0]
                LW = self._exact @ W
                values, U = solve(*_grams(jnp, W, LW))
            vectors, squares = self._rotate(W, LW, jnp.asarray(values, self._dtype), jnp.asarray(U, self._dtype))
            return vectors, values, np.sqrt(np.asarray(squares, np.float64))


def _grams(jnp: Any, W: Any, LW: Any) -> tuple[Array, Array]:
    """``W^T W`` and ``W^T L W`` in float64."""
    wide = W.astype(jnp.float64)
    return np.asarray(wide.T @ wide), np.asarray(wide.T @ LW.astype(jnp.float64))


def _filter(
    jax: Any, operator: Any, exact: Any, Z: Any, X: Any, degree: Any, cut: Any, upper: Any, every: Any
) -> tuple[Any, Any]:
    """The Chebyshev recurrence of `chebyshev._filter`, then the complement of Z, and L times that."""
    jnp = jax.numpy
    center, radius = ((upper + cut) / 2).astype(X.dtype), ((upper - cut) / 2).astype(X.dtype)
    scale = jnp.asarray(SCALE, X.dtype)

    def twice(X: Any) -> Any:
        return (2 / radius) * (center * X - operator @ X)

    def one(step: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        before, now = pair
        before, now = now, twice(now) - before
        shrink = jnp.where(step % every == 0, scale, 1)
        return before * shrink, now * shrink

    found = jax.lax.cond(
        degree > 0,
        lambda: jax.lax.fori_loop(1, degree, one, (X, twice(X) / 2))[1],
        lambda: X,
    ).astype(exact.data.dtype)
    for _ in range(2):
        found -= Z @ (Z.T @ found)
        found /= jnp.sqrt(jnp.sum(found**2, axis=0)) + jnp.finfo(found.dtype).tiny
    return found, exact @ found


def _rotate(W: Any, LW: Any, values: Any, U: Any) -> tuple[Any, Any]:
    """``W U`` and the squares of ``L W U - W U diag(values)``, column by column."""
    vectors = W @ U
    R = LW @ U - vectors * values
    return vectors, (R**2).sum(axis=0)
