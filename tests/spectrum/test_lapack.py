import numpy as np
import pytest

from graphuq import graph, laplacian, spectrum

from .problems import barely_joined, check_contract, complete, hypercube, points, ring, side_by_side, star

GRAPHS = {
    "gaussian": graph.gaussian(points(50), tau=1.0),
    "gaussian with self-weights": graph.precomputed(graph.gaussian(points(50), tau=1.0).weights + np.eye(50)),
    "nearest neighbors": graph.knn(points(60), n_neighbors=5),
    "cycle": ring(24),
    "hypercube": hypercube(5),
    "complete": complete(12),
    "star": star(15),
    "three components": side_by_side(ring(9), complete(7), ring(9)),
    "two nodes": np.array([[0.0, 2.0], [2.0, 0.0]]),
}


@pytest.mark.parametrize("make", [laplacian.normalized, laplacian.unnormalized])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_mode(name, make):
    L = make(GRAPHS[name])
    found = spectrum.dense(L)
    assert found.n_modes == L.degrees.size
    check_contract(found, L)


@pytest.mark.parametrize("n_modes", [1, 2, 3, 4, 24, 25])
def test_the_first_modes(n_modes):
    L = laplacian.normalized(GRAPHS["three components"])
    found = spectrum.dense(L, n_modes=n_modes)
    assert found.n_modes == n_modes
    check_contract(found, L)


def test_cycle_in_closed_form():
    found = spectrum.dense(laplacian.normalized(ring(100)))
    expected = 1 - np.cos(2 * np.pi * np.arange(100) / 100)
    np.testing.assert_allclose(found.values, np.sort(expected), atol=1e-13)


@pytest.mark.parametrize("weight", [1e-9, 1e-30])
def test_a_gap_near_rounding_leaves_the_first_vector_exact(weight):
    """The second eigenvalue is about the weight: below rounding LAPACK alone would mix the first two vectors."""
    L = laplacian.normalized(barely_joined(weight))
    assert L.n_components == 1
    found = spectrum.dense(L, n_modes=5)
    check_contract(found.truncate(1), L)
    assert np.abs(found.vectors[:, 0] @ found.vectors[:, 1:]).max() < 1e-14
    side = np.sign(found.vectors[:, 1])
    assert (side[:350] == side[0]).all()
    assert (side[350:] == -side[0]).all()


@pytest.mark.parametrize("n_modes", [0, -1, 25])
def test_a_number_of_modes_that_does_not_exist(n_modes):
    with pytest.raises(ValueError, match=f"between 1 and 24, the nodes of the graph, got {n_modes}"):
        spectrum.dense(laplacian.normalized(GRAPHS["cycle"]), n_modes=n_modes)


def test_matrices_that_do_not_fit(monkeypatch):
    monkeypatch.setattr("graphuq.memory.room", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"24 x 24 numbers, takes 0.0 MB.*Use spectrum.leading"):
        spectrum.dense(laplacian.normalized(GRAPHS["cycle"]))
