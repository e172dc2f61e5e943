"""Graphs whose spectra have something difficult about them, and the contract that every Spectrum keeps."""

import numpy as np
from scipy.sparse import block_diag, csr_array, eye_array, issparse, kron

from graphuq import graph, laplacian


def ring(n_nodes, reach=1):
    """Each node joined to its nearest `reach` on either side: every eigenvalue but the first comes twice."""
    i = np.arange(n_nodes)
    A = sum(
        csr_array((np.ones(n_nodes), (i, (i + k) % n_nodes)), shape=(n_nodes,) * 2) for k in range(1, reach + 1)
    )
    return csr_array(A + A.T)


def hypercube(n_dimensions):
    """Eigenvalue 2 j / n of the normalized Laplacian comes (n over j) times."""
    A, edge = csr_array((1, 1)), csr_array([[0.0, 1.0], [1.0, 0.0]])
    for _ in range(n_dimensions):
        A = kron(A, eye_array(2)) + kron(eye_array(A.shape[0]), edge)
    return csr_array(A)


def points(n_nodes, n_features=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n_nodes, n_features))


def complete(n_nodes):
    return np.ones((n_nodes, n_nodes)) - np.eye(n_nodes)


def star(n_nodes):
    A = np.zeros((n_nodes, n_nodes))
    A[0, 1:] = A[1:, 0] = 1
    return csr_array(A)


def side_by_side(*parts):
    return csr_array(block_diag(parts))


def barely_joined(weight):
    """Two clouds and one edge of almost no weight between them."""
    A = side_by_side(*(graph.knn(points(350, seed=s), n_neighbors=8).weights for s in (1, 2))).tolil()
    A[0, 350] = A[350, 0] = weight
    return csr_array(A)


def dense_matrix(L):
    return L.matrix.toarray() if issparse(L.matrix) else L.matrix


def check_contract(found, L, *, atol=1e-10):
    """Values, vectors, residuals, order, signs and null space of a Spectrum against numpy.linalg.eigh."""
    matrix, n_modes = dense_matrix(L), found.n_modes
    values, vectors = np.linalg.eigh(matrix)
    scale = max(1.0, values[-1])
    np.testing.assert_allclose(found.values, values[:n_modes], atol=atol * scale)
    assert (np.diff(found.values) >= -atol * scale).all()
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(n_modes), atol=1e-12)
    residuals = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    np.testing.assert_allclose(found.residuals, residuals, atol=1e-13 * scale)
    # equal eigenvalues share a space: compare projectors, those not cut off by n_modes
    ends = np.append(np.flatnonzero(np.diff(values) > 1e-8 * scale) + 1, values.size)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        if end <= n_modes:
            ours, theirs = found.vectors[:, start:end], vectors[:, start:end]
            np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=atol)
    size = np.abs(found.vectors)
    largest = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)  # the first of those equal to rounding
    assert (found.vectors[largest, np.arange(n_modes)] > 0).all()
    check_null_space(found, L)


def check_null_space(found, L):
    """Exactly zero, and in closed form on each component."""
    n_zero = min(found.n_modes, L.n_components)
    assert (found.values[:n_zero] == 0).all()
    assert (found.values[n_zero:] > 0).all()
    root = np.sqrt(L.degrees) if L.normalized else np.ones(L.degrees.size)
    component = laplacian.connected_components(np.abs(dense_matrix(L)))[1]
    for j in range(n_zero):
        q = np.where(component == j, root, 0)
        np.testing.assert_allclose(found.vectors[:, j], q / np.linalg.norm(q), atol=1e-15)
