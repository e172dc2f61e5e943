"""A sparse or dense Laplacian in; its first eigenpairs, by a Chebyshev-filtered block iteration, out.

A block of random vectors, somewhat wider than the number of modes wanted, is multiplied by a polynomial
of L that is large at the lower end of the spectrum and small on the rest, then rotated to the best
eigenvectors within its span (Rayleigh-Ritz), until every residual is small (Zhou and Saad 2007).
Each vector gets the degree it still needs (Winkelmann, Springer and Di Napoli 2019). All modes are
iterated together, so repeated eigenvalues are found with their full multiplicity.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.csgraph import reverse_cuthill_mckee

from graphuq._expect import expect, expect_count, expect_seed
from graphuq._progress import progress_bar
from graphuq._threads import eigen_threads
from graphuq._warn import warn
from graphuq.laplacian import Laplacian
from graphuq.large import sums
from graphuq.spectrum import accelerator
from graphuq.spectrum.lapack import dense
from graphuq.spectrum.processor import LARGEST_LOG, Floats, Matrix, OnProcessor, summed
from graphuq.spectrum.result import Array, Spectrum, assemble, null_space

# LAPACK is as fast on graphs up to this size, and for more than this fraction of the modes.
_SMALL, _SPARSE_SHARE, _DENSE_SHARE = 600, 1 / 3, 1 / 30
_GUARD = 0.3  # fraction of extra (guard) vectors: fewer converge more slowly, more cost more
_AIM = 0.3  # a filter aims at this fraction of the tolerance, so that few vectors need another one
_CONTRAST = 1e7  # ratio of amplifications that one filter in float32, and a Gram matrix, can resolve
_SINGLE = 1e-5  # residual, relative to the largest eigenvalue, above which filters run in float32
_LOOSE = 1e-4  # tolerance from which on everything but the small matrices is in float32
_ROWS = 4096  # rows of random numbers drawn at a time
_MAX_DEGREE = 500
_MAX_ITERATIONS = 100


def leading(
    L: Laplacian,
    *,
    n_modes: int,
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: bool | None = None,
    start: Spectrum | None = None,
) -> Spectrum:
    """The first `n_modes` eigenpairs of L (2.3), sparse or dense.

    Args:
        L: the Laplacian. LAPACK is used if it is small, or if a large fraction of its modes is wanted.
        n_modes: number of modes, q_0 included.
        tolerance: largest residual ``|L q_j - lambda_j q_j|`` allowed, for ``D - A`` relative to its largest
            eigenvalue. The error of an eigenvalue is then about the residual squared over the gap. With 1e-4 or
            more, the iteration is in single precision, which halves its time and memory.
        seed: seed of the random start; the same seed gives the same vectors.
        progress: whether to show a progress bar of converged modes; None shows it in a terminal or a notebook if
            the computation takes over a second.
        start: warm start: fewer modes of the same Laplacian, computed before; only the others are computed.
    """
    expect(L, Laplacian, "L", "a Laplacian, as laplacian.normalized(graph) makes")
    n_nodes = L.degrees.size
    expect_count(n_modes, "n_modes", n_nodes, "the nodes of the graph")
    expect(tolerance, Real, "tolerance", "a number between 1e-12 and 1e-2")
    expect_seed(seed)
    expect(start, (Spectrum, type(None)), "start", "a Spectrum of the same Laplacian, or None")
    if not 1e-12 <= tolerance <= 1e-2:
        raise ValueError(f"tolerance must lie between 1e-12 and 1e-2, got {tolerance}.")
    n_wanted = n_modes - L.n_components
    width = n_wanted + max(10, int(_GUARD * n_wanted))
    share = _DENSE_SHARE if isinstance(L.matrix, np.ndarray) else _SPARSE_SHARE
    if n_wanted <= 0 or n_nodes <= _SMALL or width > share * n_nodes:
        return dense(L, n_modes=n_modes)

    Z, matrix = null_space(L), L.matrix
    order: NDArray[np.integer[Any]] = np.arange(n_nodes)
    if not isinstance(matrix, np.ndarray):
        # neighbors close in memory make products with a large graph faster
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
        matrix = matrix[order][:, order]
    arrays = matrix if isinstance(matrix, np.ndarray) else (matrix.data, matrix.indices, matrix.indptr, order)

    def blocks(n_done: int, kept: sums.Sums | None) -> Iterator[_Block]:
        block = _start(start, matrix, Z.shape[1], width, order, seed, tolerance) if kept is None else _Block(*kept)
        return _iterate(matrix, Z[order], block, n_wanted, allowed(block), range(n_done, _MAX_ITERATIONS), bar)

    def allowed(block: _Block) -> float:
        return tolerance if L.normalized else tolerance * block.upper

    with progress_bar(n_modes, shown=progress, unit="mode", steady=False) as bar:
        problem = (arrays, L.normalized, n_modes, tolerance, seed, None if start is None else start.values)
        block = _Block(*sums.going_on(blocks, lambda _, block: block, "spectrum", problem))
    if not block.done:
        worst = block.residuals[:n_wanted]
        warn(
            f"{np.count_nonzero(worst > allowed(block))} of {n_wanted} eigenpairs did not reach a residual of "
            f"{allowed(block):.1e} in {_MAX_ITERATIONS} iterations; the largest is {worst.max():.1e}. Allow a larger "
            "tolerance, or use spectrum.dense if the graph is small.",
            RuntimeWarning,
        )
    reordered: Any = np.asarray(block.vectors)[:, :n_wanted]
    vectors = np.empty_like(reordered)
    vectors[order] = reordered
    method = f"chebyshev(tolerance={tolerance:g}, seed={seed})"
    return assemble(L, Z, block.values[:n_wanted], vectors, method, block.residuals[:n_wanted])


class _Block(NamedTuple):
    """State of the iteration: vectors, their Rayleigh quotients and residuals if known, and the next filter.

    The filter damps eigenvalues in [cut, upper]; `margin` keeps the cut above the last wanted value; `worst` is
    the largest wanted residual.
    """

    vectors: Floats
    values: Array
    residuals: Array
    cut: float
    upper: float
    margin: float = 0.0
    worst: float = np.inf
    done: bool = False  # converged, and cut down to the wanted vectors


def _start(
    known: Spectrum | None,
    matrix: Matrix,
    n_null: int,
    width: int,
    order: NDArray[np.integer[Any]],
    seed: int,
    tolerance: float,
) -> _Block:
    """Initial block: the modes already known, beyond the null space, and random vectors."""
    rng, n_nodes = np.random.default_rng(seed), matrix.shape[0]
    dtype: Any = np.float32 if tolerance >= _LOOSE else np.float64
    cut, upper = _cut_and_end(matrix.astype(dtype), (n_null - 1 + width) / n_nodes, rng)
    n_known = 0 if known is None else min(known.n_modes - n_null, width)
    block = _Block(np.empty((n_nodes, width), dtype), np.full(width, cut), np.full(width, upper), cut, upper)
    if known is not None and n_known > 0:
        kept = slice(n_null, n_null + n_known)
        block.vectors[:, :n_known] = known.vectors[order, kept]
        block.values[:n_known], block.residuals[:n_known] = known.values[kept], known.residuals[kept]
    n_known = max(n_known, 0)
    for rows in range(0, n_nodes, _ROWS):
        part = block.vectors[rows : rows + _ROWS, n_known:]
        part[...] = rng.standard_normal(part.shape, dtype=dtype)
    return block


def _iterate(
    matrix: Matrix, Z: Array, block: _Block, n_wanted: int, allowed: float, iterations: range, bar: Any
) -> Iterator[_Block]:
    """Filter and rotate a block of vectors, orthogonal to the null space Z, until the wanted ones converge."""
    if block.done or not iterations:
        return
    vectors, values, residuals, cut, upper, margin, worst, _ = block
    width = vectors.shape[1]
    place: Any = (accelerator.OnAccelerator if accelerator.is_worth_it(matrix) else OnProcessor)(
        matrix, Z, vectors
    )
    for _ in iterations:
        degrees = _degrees(values, residuals / (_AIM * allowed), n_wanted, cut, upper)
        rescale_every = max(1, int(LARGEST_LOG / float(_growth(0.0, cut, upper))))  # steps
        W, LW = place.filtered(vectors, degrees, residuals > _SINGLE * upper, (cut, upper, rescale_every))
        vectors, values, residuals = _rayleigh_ritz(place, W, LW)
        converged = residuals[:n_wanted] <= allowed
        bar.update(Z.shape[1] + int(converged.sum()) - bar.n)
        if converged.all() and _orthonormal(np.asarray(vectors)):
            wanted = np.asarray(vectors)[:, :n_wanted], values[:n_wanted], residuals[:n_wanted]
            yield _Block(*wanted, cut, upper, done=True)
            return

        # The last guard vectors are inaccurate and would put the cut too high. Where all of them share
        # the last wanted eigenvalue, the iteration stalls until the cut is above it.
        last, guard = values[n_wanted - 1], values[n_wanted + 3 * (width - n_wanted) // 4]
        before, worst = worst, residuals[:n_wanted].max()
        if worst > before / 2 and degrees[n_wanted - 1] < _MAX_DEGREE:
            margin = max(2 * margin, 0.02 * (upper - last))
        cut = min(float(max(min(guard, cut), last + margin)), 0.99 * upper)
        yield _Block(vectors, values, residuals, cut, upper, margin, worst)


def _cut_and_end(matrix: Matrix, share: float, rng: np.random.Generator) -> tuple[float, float]:
    """Estimate of the eigenvalue below which this fraction of the spectrum lies, and a bound on the largest.

    Lanczos quadrature of the spectral density: a few steps from each of a few random vectors give the
    Ritz values as nodes and the squared first entries of their vectors as weights (Lin, Saad, Yang 2016).
    """
    n_probes, n_steps = 12, 40
    X = rng.standard_normal((matrix.shape[0], n_probes)).astype(matrix.dtype)
    X /= np.linalg.norm(X, axis=0)
    previous, beta = np.zeros_like(X), np.zeros(n_probes, matrix.dtype)
    diagonal, off_diagonal = np.empty((2, n_steps, n_probes))
    for step in range(n_steps):
        W = matrix @ X - previous * beta
        diagonal[step] = np.sum(W * X, axis=0)
        W -= X * diagonal[step]
        off_diagonal[step] = beta = np.maximum(np.linalg.norm(W, axis=0), np.finfo(matrix.dtype).tiny)
        previous, X = X, W / beta
    nodes, weights = np.empty((2, n_probes, n_steps))
    end = 0.0
    for probe in range(n_probes):
        # stev, since the default, stemr, fails on nearly empty rows in some builds of LAPACK
        nodes[probe], U = eigh_tridiagonal(diagonal[:, probe], off_diagonal[:-1, probe], lapack_driver="stev")
        weights[probe] = U[0] ** 2
        end = max(end, float(nodes[probe, -1] + off_diagonal[-1, probe] * abs(U[-1, -1])))
    order = np.argsort(nodes, axis=None)
    below = np.cumsum(weights.ravel()[order]) / n_probes
    upper = 1.01 * end
    cut = float(np.interp(share, below, nodes.ravel()[order]))
    return min(max(cut, 1e-6 * upper), 0.99 * upper), upper  # above 0 even if the null space is large


def _growth(values: Array | float, cut: float, upper: float) -> Array:
    """Log of the factor by which a filter amplifies each eigenvalue, per degree; zero above the cut."""
    center, radius = (upper + cut) / 2, (upper - cut) / 2
    return np.arccosh(np.maximum((center - values) / radius, 1.0))


def _degrees(values: Array, ratios: Array, n_wanted: int, cut: float, upper: float) -> NDArray[np.int64]:
    """Filter degree for each vector: enough to divide its residual by its ratio, within limits.

    Rounding puts a trace of every eigenvector into every vector. So that the lowest modes, which grow
    fastest, cannot swamp the wanted one, no filter amplifies eigenvalue 0 by more than `_CONTRAST`
    relative to the vector's own eigenvalue.
    """
    growth = _growth(values, cut, upper)
    smallest = 1e-12  # keeps the quotients finite
    need = np.log(np.maximum(ratios, 1.0)) / np.maximum(growth, smallest)
    need[n_wanted:] = need[n_wanted - 1]
    limit = np.log(_CONTRAST) / np.maximum(_growth(0.0, cut, upper) - growth, smallest)
    return np.ceil(np.minimum(np.minimum(need, limit), _MAX_DEGREE)).astype(np.int64)


def _rayleigh_ritz(place: Any, W: Any, LW: Any) -> tuple[Any, Array, Array]:
    """Ritz pairs in the span of W, ``W^T L W U = W^T W U diag(values)``, and their residuals.

    With ``W^T W = C C^T`` this is a standard eigenproblem: the eigenvectors of ``C^-1 W^T L W C^-T`` are
    ``C^T U``.
    """
    try:
        values, U = _solve_projected(*place.products(W, LW))
    except np.linalg.LinAlgError:  # the columns are linearly dependent up to rounding
        W, LW = place.independent(W)
        values, U = _solve_projected(*place.products(W, LW))
    vectors, squares = place.rotated(W, LW, U, values)
    return vectors, values, np.sqrt(squares)


def _solve_projected(gram: Array, projected: Array) -> tuple[Array, Array]:
    """Ritz values and coefficients U of `_rayleigh_ritz`, from ``W^T W`` and ``W^T L W``."""
    # NumPy only: SciPy may carry a second BLAS, and two thread pools used in turn wait for each other
    with eigen_threads(len(gram)):
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
        values, U = np.linalg.eigh(inverse @ projected @ inverse.T)
        return values, inverse.T @ U


def _orthonormal(V: Floats) -> bool:
    """Whether the columns are orthonormal up to rounding; ill-conditioned ones need one more rotation."""
    rounding = 1e-12 if V.dtype == np.float64 else 1e-4
    gram = summed(lambda rows: V[rows].T @ V[rows], len(V))
    return bool(np.abs(gram - np.eye(V.shape[1])).max() < rounding)
