import numpy as np
import pytest

from graphuq import graph, laplacian, spectrum
from graphuq.spectrum.chebyshev import _rayleigh_ritz
from graphuq.spectrum.processor import OnProcessor

from .problems import barely_joined, check_contract, complete, hypercube, points, ring, side_by_side, star

# All above the size up to which LAPACK does the work; the number of modes comes with each.
CLOUD = graph.knn(points(800), n_neighbors=10)
GRAPHS = {
    "nearest neighbors": (CLOUD, 40),
    "dense": (graph.self_tuning(points(700, 2)), 8),
    "ring, pairs of equal eigenvalues": (ring(700, reach=25), 21),
    "ring, a pair cut in two": (ring(700, reach=25), 20),
    "hypercube, 120 equal eigenvalues cut": (hypercube(10), 60),
    "complete, all equal": (complete(650), 5),
    "star, all but two equal": (star(650), 40),
    "three components, two alike": (side_by_side(ring(300, 15), ring(300, 15), ring(80, 10)), 25),
    "more components than modes": (side_by_side(*[complete(70)] * 10), 6),
    "as many components as modes": (side_by_side(*[complete(70)] * 10), 10),
    "many components and few modes more, as of repeated rows": (side_by_side(*[complete(9)] * 80), 85),
}


@pytest.mark.parametrize("make", [laplacian.normalized, laplacian.unnormalized])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_first_modes(name, make):
    A, n_modes = GRAPHS[name]
    L = make(A)
    found = spectrum.leading(L, n_modes=n_modes, tolerance=1e-12)
    assert found.n_modes == n_modes
    assert found.method.startswith("chebyshev") == (n_modes > L.n_components)
    check_contract(found, L)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-9])
def test_residuals_keep_to_the_tolerance(tolerance):
    L = laplacian.normalized(CLOUD)
    found = spectrum.leading(L, n_modes=100, tolerance=tolerance)
    assert found.residuals.max() <= tolerance
    exact = np.linalg.eigvalsh(L.matrix.toarray())[:100]
    np.testing.assert_allclose(found.values, exact, atol=max(1e-13, 10 * tolerance**2 / 1e-3))


def test_clustered_at_zero():
    """A long cycle: twenty eigenvalues within 0.1% of the range, each twice."""
    found = spectrum.leading(laplacian.normalized(ring(1500)), n_modes=21, tolerance=1e-10)
    expected = 1 - np.cos(2 * np.pi * np.repeat(np.arange(11), 2)[1:] / 1500)
    np.testing.assert_allclose(found.values, expected, atol=1e-13)


def test_a_gap_below_the_tolerance_leaves_the_first_vector_exact():
    L = laplacian.normalized(barely_joined(1e-9))
    found = spectrum.leading(L, n_modes=10)
    assert np.abs(found.vectors[:, 0] @ found.vectors[:, 1:]).max() < 1e-14
    check_contract(found.truncate(1), L)
    np.testing.assert_allclose(found.values, spectrum.dense(L, n_modes=10).values, atol=1e-10)


def test_the_same_seed_gives_the_same_numbers():
    L = laplacian.normalized(CLOUD)
    first, again, other = (spectrum.leading(L, n_modes=10, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.vectors, again.vectors)
    assert not np.array_equal(first.vectors, other.vectors)
    np.testing.assert_allclose(first.values, other.values, atol=1e-10)


def test_renumbered_nodes_renumber_the_vectors():
    order = np.random.default_rng(0).permutation(800)
    whole = spectrum.leading(laplacian.normalized(CLOUD.weights), n_modes=10, tolerance=1e-12)
    moved = spectrum.leading(laplacian.normalized(CLOUD.weights[order][:, order]), n_modes=10, tolerance=1e-12)
    np.testing.assert_allclose(moved.vectors, whole.vectors[order], atol=1e-9)


@pytest.mark.parametrize(("n_nodes", "n_modes"), [(100, 5), (800, 790), (800, 800)])
def test_small_graphs_and_most_of_the_modes_go_to_lapack(n_nodes, n_modes):
    L = laplacian.normalized(graph.knn(points(n_nodes), n_neighbors=10))
    found = spectrum.leading(L, n_modes=n_modes)
    assert found.method == "dense"
    assert found.n_modes == n_modes


def test_vectors_that_have_become_dependent_are_no_failure():
    """Every column twice: the Gram matrix is singular, and the eigenpairs in the span come out all the same."""
    matrix = laplacian.normalized(CLOUD).matrix
    exact_values, exact = np.linalg.eigh(matrix.toarray())
    W = np.repeat(exact[:, :5], 2, axis=1)
    place = OnProcessor(matrix, np.zeros((len(W), 1)), np.empty_like(W))
    vectors, values, residuals = _rayleigh_ritz(place, W, matrix @ W)
    np.testing.assert_allclose(values[:5], exact_values[:5], atol=1e-12)
    assert residuals[:5].max() < 1e-12
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(10), atol=1e-12)


def test_no_convergence_is_a_warning_with_advice(monkeypatch):
    monkeypatch.setattr("graphuq.spectrum.chebyshev._MAX_ITERATIONS", 1)
    with pytest.warns(RuntimeWarning, match=r"of 29 eigenpairs did not reach .* Allow a larger tolerance"):
        found = spectrum.leading(laplacian.normalized(CLOUD), n_modes=30)
    assert found.residuals.max() > 1e-6


def test_progress_is_silent_unless_asked(capsys):
    L = laplacian.normalized(CLOUD)
    spectrum.leading(L, n_modes=10)
    assert capsys.readouterr() == ("", "")
    spectrum.leading(L, n_modes=10, progress=True)
    out, error = capsys.readouterr()
    assert out == ""
    assert "10/10" in error


@pytest.mark.parametrize("n_modes", [0, 801])
def test_a_number_of_modes_that_does_not_exist(n_modes):
    with pytest.raises(ValueError, match=f"between 1 and 800, the nodes of the graph, got {n_modes}"):
        spectrum.leading(laplacian.normalized(CLOUD), n_modes=n_modes)


@pytest.mark.parametrize("tolerance", [0, 1.0, np.nan])
def test_a_tolerance_that_cannot_be_met(tolerance):
    with pytest.raises(ValueError, match="tolerance must lie between"):
        spectrum.leading(laplacian.normalized(CLOUD), n_modes=5, tolerance=tolerance)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_modes_found_before_are_kept_and_others_found_beside_them(tolerance):
    L = laplacian.normalized(side_by_side(CLOUD.weights, ring(300, 15)))
    few = spectrum.leading(L, n_modes=30, tolerance=tolerance)
    more = spectrum.leading(L, n_modes=90, tolerance=tolerance, start=few)
    exact_values, exact = np.linalg.eigh(L.matrix.toarray())
    np.testing.assert_allclose(more.values, exact_values[:90], atol=10 * tolerance**2 / 1e-3)
    assert np.linalg.norm(L.matrix @ more.vectors - more.vectors * more.values, axis=0).max() < 1.01 * tolerance
    inside = np.linalg.norm(exact[:, :120].T @ more.vectors, axis=0)
    np.testing.assert_allclose(inside, 1, atol=1e-3)


def test_single_precision_spans_the_same_space():
    """Vectors of a loose tolerance are orthonormal to rounding of float32, and turn into the exact ones."""
    L = laplacian.normalized(graph.knn(points(900), n_neighbors=10))
    loose = spectrum.leading(L, n_modes=60, tolerance=1e-3)
    exact_values, exact = np.linalg.eigh(L.matrix.toarray())
    np.testing.assert_allclose(loose.vectors.T @ loose.vectors, np.eye(60), atol=1e-4)
    np.testing.assert_allclose(loose.values, exact_values[:60], atol=1e-5)
    gap = exact_values[60:] - loose.values[:50].max()
    far = exact[:, 60:][:, gap > 0.01]
    assert np.abs(far.T @ loose.vectors[:, :50]).max() < 1e-3 / 0.01
