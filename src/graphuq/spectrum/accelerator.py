"""Blocks of vectors in; the same filtered and rotated on a GPU, where they stay between these steps, out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import _accelerator
from graphuq._accelerator import compiled, precise
from graphuq.spectrum.processor import LARGEST_LOG, Array, complement

# For smaller graphs the transfers take longer than the eigenvectors take on the CPU.
LEAST_NODES = 20_000
# Columns filtered together, up to the highest degree that any of them needs.
BLOCK = 64
SETTING = "jax_bcoo_cusparse_lowering"


def is_worth_it(matrix: Any) -> bool:
    """Whether the matrix is sparse and large, and JAX has a GPU."""
    return not isinstance(matrix, np.ndarray) and matrix.shape[0] >= LEAST_NODES and _accelerator.has_gpu()


class OnAccelerator:
    """GPU counterpart of `OnProcessor`; scalars and small matrices stay in NumPy."""

    def __init__(self, matrix: Any, Z: Array, vectors: Any) -> None:
        import jax
        from jax.experimental.sparse import BCSR

        self._jax, self._dtype = jax, vectors.dtype
        with precise():
            self._single = BCSR.from_scipy_sparse(matrix.astype(np.float32))
            exact = BCSR.from_scipy_sparse(matrix) if vectors.dtype == np.float64 else self._single
            self._exact, self._Z = exact, jax.numpy.asarray(Z, vectors.dtype)

    def filtered(
        self, vectors: Any, degrees: NDArray[np.int64], rough: NDArray[np.bool_], bounds: tuple[float, float, int]
    ) -> tuple[Any, Any]:
        """The filtered vectors W, orthogonal to the null space, and L W."""
        jnp, parts = self._jax.numpy, []
        with precise(), _by_cusparse():
            for start in range(0, vectors.shape[1], BLOCK):
                columns = slice(start, start + BLOCK)
                operator = self._single if rough[columns].all() else self._exact
                X = jnp.asarray(vectors[:, columns], operator.data.dtype)
                degree = int(degrees[columns].max())
                parts.append(compiled(_filter)(operator, self._exact, self._Z, X, degree, *bounds))
            W, LW = (jnp.concatenate(blocks, axis=1) for blocks in zip(*parts, strict=True))
        return W, LW

    def products(self, W: Any, LW: Any) -> tuple[Array, Array]:
        """``W^T W`` and ``W^T L W`` in float64."""
        with precise():
            gram, projected = compiled(_products)(W, LW)
            return np.asarray(gram), np.asarray(projected)

    def independent(self, W: Any) -> tuple[Any, Any]:
        """Orthonormal columns with the span of W, and L times them."""
        with precise(), _by_cusparse():
            Q = self._jax.numpy.linalg.qr(W)[0]
            return Q, self._exact @ Q

    def rotated(self, W: Any, LW: Any, U: Array, values: Array) -> tuple[Any, Array]:
        """``W U``, and the squared norms of the columns of ``L W U - W U diag(values)``."""
        with precise():
            vectors, squares = compiled(_rotate)(W, LW, values.astype(self._dtype), U.astype(self._dtype))
            return vectors, np.asarray(squares, np.float64)


@contextmanager
def _by_cusparse() -> Iterator[None]:
    """Context in which JAX compiles sparse products as calls of cuSPARSE, for which it has only a global setting."""
    import jax

    before = getattr(jax.config, SETTING)
    jax.config.update(SETTING, True)
    try:
        yield
    finally:
        jax.config.update(SETTING, before)


def _filter(
    operator: Any, exact: Any, Z: Any, X: Any, degree: Any, cut: Any, upper: Any, rescale_every: Any
) -> tuple[Any, Any]:
    """The filter of `processor._filter`, then projection onto the complement of Z; returns this W and L W."""
    import jax
    import jax.numpy as jnp

    center, radius = ((upper + cut) / 2).astype(X.dtype), ((upper - cut) / 2).astype(X.dtype)
    scale = jnp.asarray(np.exp(-LARGEST_LOG), X.dtype)

    def twice(X: Any) -> Any:
        return (2 / radius) * (center * X - operator @ X)

    def step(k: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        previous, current = pair
        previous, current = current, twice(current) - previous
        shrink = jnp.where(k % rescale_every == 0, scale, 1)
        return previous * shrink, current * shrink

    W = jax.lax.cond(degree > 0, lambda: jax.lax.fori_loop(1, degree, step, (X, twice(X) / 2))[1], lambda: X)
    W = complement(Z, W.astype(exact.data.dtype))
    return W, exact @ W


def _products(W: Any, LW: Any) -> tuple[Any, Any]:
    wide = W.astype(np.float64)
    return wide.T @ wide, wide.T @ LW.astype(np.float64)


def _rotate(W: Any, LW: Any, values: Any, U: Any) -> tuple[Any, Any]:
    vectors = W @ U
    R = LW @ U - vectors * values
    return vectors, (R**2).sum(axis=0)
