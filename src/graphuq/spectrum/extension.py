"""A spectrum and new points in; the values of its eigenvectors at the new points out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from graphuq._expect import expect
from graphuq._warn import warn
from graphuq.graph import Graph, LowRankGraph
from graphuq.graph.features import Array, Matrix, MatrixLike, squared_lengths, to_float
from graphuq.spectrum.result import Spectrum
from graphuq.tall import Tall, row_blocks, spread

# Dividing by less would spoil the third digit of an eigenvector with residual 1e-6, the default tolerance.
_LEAST_DIVISOR = 1e-3
# With low-rank weights the extension is an inner product of features, limited only by rounding. The modes of a
# nearly constant cosine graph all have divisors below 1e-3, yet are informative at new points.
_LEAST_DIVISOR_LOW_RANK = 1e-9
# Evenly spread nodes at which the effective number of neighbors is estimated.
_N_SAMPLED = 300


def extend(spectrum: Spectrum, graph: Graph | LowRankGraph, X_new: MatrixLike) -> Array:
    """Nystrom extension of the eigenvectors to new points, shape (n_new, n_modes) (Fowlkes et al. 2004).

    The eigenvector equation expresses the value at a node in terms of its neighbors. At a new point x with weights
    ``a(x, i)`` to the nodes and their sum as degree ``d_x``, it gives for the normalized L

        q_j(x) = sum_i a(x, i) q_j(i) / sqrt(d_x d_i) / (1 - lambda_j),

    and ``q_j(x) = sum_i a(x, i) q_j(i) / (d_x - lambda_j)`` for ``D - A``. At a node this reproduces its value.

    No extension exists where lambda_j is 1 (or d_x), and close to that errors are amplified: the error of q_j is
    its residual over ``|1 - lambda_j|``. Where that divisor (or ``|1 - lambda_j / d_x|``) is below 1e-3, or 1e-9
    for low-rank weights, the value is set to zero; so are all values at a point without weights.

    Args:
        spectrum: the eigenvectors to extend.
        graph: the graph they belong to, made from features.
        X_new: features of the new points, shape (n_new, n_features).
    """
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    expect(graph, (Graph, LowRankGraph), "graph", "the graph that the spectrum was made from")
    if graph.n_nodes != spectrum.n_nodes:
        raise ValueError(
            f"The spectrum has {spectrum.n_nodes} nodes and the graph {graph.n_nodes}: give the graph that the "
            "spectrum was made from."
        )
    if isinstance(graph, Graph):
        return extend_weights(spectrum, graph.to_new(X_new))
    if isinstance(graph.factor, Tall):
        vectors: Any = spectrum.vectors
        return np.asarray(vectors.source.function(X_new))
    F, factor = graph.factor, graph.feature_map(X_new)
    inner = sum(F[rows].T @ _scaled(spectrum, rows) for rows in row_blocks(*spectrum.vectors.shape))
    degrees = np.ravel(factor @ graph.total)
    return _divide(spectrum, factor @ inner, degrees, _LEAST_DIVISOR_LOW_RANK, graph.least_degree)


def extend_weights(spectrum: Spectrum, weights: MatrixLike) -> Array:
    """Like `extend`, but from the weights of new points to the nodes, dense or sparse, shape (n_new, n_nodes)."""
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    A: Matrix = to_float(weights, "Weights")
    if A.ndim != 2 or A.shape[1] != spectrum.n_nodes:
        raise ValueError(
            f"Weights of new points must have a column for each of {spectrum.n_nodes} nodes, got the shape "
            f"{A.shape}."
        )
    entries = A if isinstance(A, np.ndarray) else A.data
    if not (np.isfinite(entries).all() and entries.min(initial=0.0) >= 0):
        raise ValueError("Weights of new points must be finite and not negative.")
    degrees = np.asarray(A.sum(axis=1))
    if spectrum.normalized:  # scaling the weights of a few points is cheaper than scaling the eigenvectors
        scale = 1 / np.sqrt(spectrum.degrees)
        A = (
            A * scale
            if isinstance(A, np.ndarray)
            else csr_array((A.data * scale[A.indices], A.indices, A.indptr), A.shape)
        )
    return _divide(spectrum, A @ spectrum.vectors, degrees, _LEAST_DIVISOR)


def believed_modes(spectrum: Spectrum, graph: Graph | LowRankGraph) -> NDArray[np.bool_]:
    """Boolean mask of the modes whose extension to new points is more than noise, shape (n_modes,).

    The extension averages the mode over neighbors, with weights w_i, and divides by ``1 - lambda_j`` or, for
    ``D - A``, by ``1 - lambda_j / d_x`` at a typical node x. The signal in the average shrinks with the divisor;
    the noise stays at ``1 / sqrt(n)`` with ``n = 1 / sum_i w_i^2`` effective neighbors. A mode is believed if its
    signal has at least half the power of its noise. The first mode after the null space is believed whatever its
    noise, and so are those whose divisor is at least half of its divisor. Where its divisor is negative, as in a few nodes
    all joined to each other, none is: a node has no weight to itself, so its average over neighbors has the opposite
    sign, but that of a new point near it has not. With low-rank weights a mode is a function of the features, which is
    the same at new points: every mode that has an extension is believed.
    """
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    expect(graph, (Graph, LowRankGraph), "graph", "the graph that the spectrum was made from")
    nodes = np.arange(*spread(graph.n_nodes).indices(graph.n_nodes))  # kept by models of stores
    sample = nodes[np.linspace(0, nodes.size - 1, min(nodes.size, _N_SAMPLED)).astype(int)]
    degrees = np.ravel(graph.degrees[sample])
    scale = np.ones(1) if spectrum.normalized else degrees
    signed = 1 - spectrum.values / scale[:, None]
    divisor, sign = np.median(np.abs(signed), axis=0), np.sign(np.median(signed, axis=0))
    if isinstance(graph, LowRankGraph):
        return np.asarray(divisor >= _LEAST_DIVISOR_LOW_RANK)
    shares = graph.weights[sample] / degrees[:, None]  # not after squaring, which underflows
    noise = 1 / np.sqrt(2 * np.median(1 / squared_lengths(shares)))
    n_null = min(spectrum.n_components, spectrum.n_modes - 1)
    if sign[n_null] <= 0:
        return np.arange(spectrum.n_modes) < n_null
    return np.asarray((divisor >= noise) | (sign * divisor >= divisor[n_null] / 2))


def _scaled(spectrum: Spectrum, rows: slice) -> Array:
    """Rows of ``D^{-1/2} Q`` for the normalized Laplacian, of Q for ``D - A``."""
    vectors = spectrum.vectors[rows]
    return vectors / np.sqrt(spectrum.degrees[rows, None]) if spectrum.normalized else vectors


def _divide(spectrum: Spectrum, sums: Array, degrees: Array, least: float, least_degree: float = 0.0) -> Array:
    """Extension at new points: weighted sums over nodes, divided as the eigenvector equation says.

    Degrees of new points are raised to `least_degree`, like those of nodes.
    """
    alone = ~(degrees > 0)
    if alone.any():
        n = np.count_nonzero(alone)
        subject = f"{n:,} new points have" if n > 1 else "1 new point has"
        warn(f"{subject} no weight to any node: nothing is known of {'them' if n > 1 else 'it'}.")
    degrees = np.where(alone, 1.0, np.maximum(degrees, least_degree))[:, None]
    factor = 1 - spectrum.values / (1.0 if spectrum.normalized else degrees)
    sums = sums / (np.sqrt(degrees) if spectrum.normalized else degrees)
    well_posed = (np.abs(factor) >= least) & ~alone[:, None]  # low-rank weights may cancel, or be negative
    return np.divide(sums, factor, out=np.zeros_like(sums), where=well_posed)
