"""What every graph has in common, and the weights a person brings."""

import numpy as np
import pytest
from scipy import sparse

from graphuq import graph, tall
from graphuq.graph import features
from graphuq.graph.distances import pair_squared_distances, squared_distances

CONSTRUCTORS = {
    "self_tuning": lambda X, **options: graph.self_tuning(X, n_neighbors=5, **options),
    "gaussian": lambda X, **options: graph.gaussian(X, tau=1.3, **options),
    "knn": lambda X, **options: graph.knn(X, n_neighbors=5, **options),
    "knn_fixed": lambda X, **options: graph.knn(X, n_neighbors=5, weights=1.3, **options),
    "knn_approximate": lambda X, **options: graph.knn(X, n_neighbors=5, method="approximate", **options),
}
every_graph = pytest.mark.parametrize("make", CONSTRUCTORS.values(), ids=CONSTRUCTORS)


def points(n_nodes=40, n_features=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n_nodes, n_features))


def to_dense(A):
    return A.toarray() if sparse.issparse(A) else A


def naive_squared_distances(X, Y):
    return np.square(X[:, None] - Y[None]).sum(axis=2)


@pytest.fixture(params=[2**25, 700], ids=["one_block", "many_blocks"])
def _blocks(request, monkeypatch):
    monkeypatch.setattr(tall, "_BLOCK_BYTES", request.param)


@every_graph
@pytest.mark.usefixtures("_blocks")
def test_weights_are_symmetric_with_zero_diagonal_and_known_degrees(make):
    A = make(points())
    W = to_dense(A.weights)
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_array_equal(np.diag(W), 0)
    assert W.min() >= 0
    assert W.max() <= 1
    np.testing.assert_allclose(A.degrees, W.sum(axis=1), rtol=1e-14)
    assert A.n_nodes == 40


@every_graph
def test_permuted_nodes_permute_the_weights(make):
    X = points()
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_allclose(
        to_dense(make(X[order]).weights), to_dense(make(X).weights)[np.ix_(order, order)], atol=1e-12
    )


@every_graph
@pytest.mark.parametrize("n_components", [None, 2])
@pytest.mark.usefixtures("_blocks")
def test_a_node_passed_as_new_gets_its_own_row_back(make, n_components):
    X = points()
    A = make(X, n_components=n_components)
    rows = [3, 17, 3, 39]
    np.testing.assert_array_equal(to_dense(A.to_new(X[rows])), to_dense(A.weights)[rows])


@every_graph
@pytest.mark.usefixtures("_blocks")
def test_nodes_and_new_points_may_be_mixed(make):
    X, X_new = points(), points(7, seed=1)
    A = make(X)
    mixed = to_dense(A.to_new(np.concatenate([X_new[:3], X[5:7], X_new[3:]])))
    np.testing.assert_allclose(np.delete(mixed, [3, 4], axis=0), to_dense(A.to_new(X_new)), atol=1e-14)
    np.testing.assert_array_equal(mixed[3:5], to_dense(A.weights)[5:7])


@every_graph
def test_projection_is_principal_components(make):
    X, X_new = points(), points(6, seed=1)
    _, _, V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    A, projected = make(X, n_components=2), make(X @ V[:2].T)
    np.testing.assert_allclose(to_dense(A.weights), to_dense(projected.weights), atol=1e-10)
    np.testing.assert_allclose(to_dense(A.to_new(X_new)), to_dense(projected.to_new(X_new @ V[:2].T)), atol=1e-10)


@every_graph
@pytest.mark.parametrize("n_features", [6, 90], ids=["tall", "wide"])
def test_sparse_features_may_be_projected(make, n_features):
    X = np.maximum(points(n_features=n_features) - 0.5, 0)
    A, B = make(X, n_components=3), make(sparse.csr_matrix(X), n_components=3)
    np.testing.assert_allclose(to_dense(A.weights), to_dense(B.weights), atol=1e-10)
    np.testing.assert_allclose(to_dense(A.to_new(X)), to_dense(B.to_new(sparse.coo_array(X))), atol=1e-10)


@pytest.mark.parametrize("make", [graph.knn, graph.self_tuning])
@pytest.mark.parametrize("n_components", [None, 3])
def test_at_unit_length_directions_are_compared(make, n_components):
    """The graph of rows divided by their lengths before and after they are centered and projected."""

    def unit(z):
        return z / np.linalg.norm(z, axis=1)[:, None]

    X, X_new = points(), points(7, seed=1)
    space = features.prepare(unit(X), n_components)
    expected = make(unit(space.points), n_neighbors=4)
    A = make(X, n_components=n_components, n_neighbors=4, unit_length=True)
    np.testing.assert_allclose(to_dense(A.weights), to_dense(expected.weights), atol=1e-10)
    new = expected.to_new(unit(space.project(unit(X_new))))
    for factor in (1.0, 10.0):
        np.testing.assert_allclose(to_dense(A.to_new(factor * X_new)), to_dense(new), atol=1e-10)
    longer = make(
        X * (1 + np.arange(len(X)) % 3)[:, None], n_components=n_components, n_neighbors=4, unit_length=True
    )
    np.testing.assert_allclose(to_dense(longer.weights), to_dense(A.weights), atol=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_row_of_zeros_has_no_direction_and_lies_far_from_all_others(kind):
    X = np.maximum(points(n_features=6), 0) + np.eye(1, 6)
    X[3] = 0
    A = graph.knn(kind(X), n_neighbors=4, n_components=3, unit_length=True)
    place = A.features.points
    lengths = np.linalg.norm(np.delete(place, 3, axis=0), axis=1)
    np.testing.assert_allclose(lengths, 1)
    assert np.linalg.norm(place[3]) == pytest.approx(features.FAR)
    np.testing.assert_allclose(A.features.project(kind(np.zeros((1, 6)))), place[[3]])


@pytest.mark.parametrize("n_components", [3, 40])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_of_very_many_features_the_points_are_the_same(kind, n_components, monkeypatch):
    X = points(n_features=90)
    expected = graph.knn(X, n_neighbors=5, n_components=n_components)
    monkeypatch.setattr(features, "MOST_IN_COVARIANCE", 60)
    found = graph.knn(kind(X), n_neighbors=5, n_components=n_components)
    np.testing.assert_allclose(to_dense(found.weights), to_dense(expected.weights), atol=1e-10)
    with pytest.raises(ValueError, match="All points coincide"):
        graph.knn(kind(np.ones((40, 90))), n_neighbors=5, n_components=n_components)


@pytest.mark.parametrize("n_kept", [5, 12, 15])
def test_constant_features_have_no_part_in_principal_components(n_kept, monkeypatch):
    """Those of the features that vary, if there are as many; otherwise also some without variance."""
    varying = np.arange(20) % 5 < 3
    X = np.where(varying, np.random.default_rng(0).normal(size=(50, 20)) * np.arange(1, 21), 7.0)
    sizes, eigh = [], features.eigh
    monkeypatch.setattr(features, "eigh", lambda A, **some: sizes.append(len(A)) or eigh(A, **some))
    W = features.principal(X, X.mean(axis=0), n_kept)
    assert sizes == [12 if n_kept <= 12 else 20]
    expected = features.principal(X[:, varying], X[:, varying].mean(axis=0), min(n_kept, 12))
    np.testing.assert_allclose(W.T @ W, np.eye(n_kept), atol=1e-12)
    np.testing.assert_allclose(np.abs(W[varying, :12]), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(W[~varying, :12], 0, atol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_of_fewer_rows_than_features_no_square_of_features_is_decomposed(kind, monkeypatch):
    X = points(n_features=90)  # of 40 rows
    asked, bare = [], features._leading
    monkeypatch.setattr(features, "_leading", lambda A, n: asked.append(A.shape) or bare(A, n))
    W = features.principal(kind(X), X.mean(axis=0), 5)
    assert asked == [(40, 40)]
    best = np.linalg.svd(X - X.mean(axis=0))[2][:5]
    np.testing.assert_allclose(W @ W.T, best.T @ best, atol=1e-10)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_of_very_many_rows_and_features_directions_hold_nearly_as_much_variance(kind, monkeypatch):
    """Singular values that fall as slowly as those of texts do; a random subspace holds much less."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(n, 200)))[0] for n in (400, 300))
    X = (U / np.sqrt(1 + np.arange(200))) @ V.T + rng.normal(size=300)
    centered = X - X.mean(axis=0)
    monkeypatch.setattr(features, "MOST_IN_COVARIANCE", 50)
    W = features.principal(kind(X), X.mean(axis=0), 30)
    np.testing.assert_allclose(W.T @ W, np.eye(30), atol=1e-12)
    best = np.square(np.linalg.svd(centered, compute_uv=False)[:30]).sum()
    assert 0.99 * best < np.square(centered @ W).sum() <= best * (1 + 1e-12)
    at_random = np.linalg.qr(rng.normal(size=(300, 30)))[0]
    assert np.square(centered @ at_random).sum() < 0.5 * best


@every_graph
@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.full((9, 2), np.nan), {}, "NaN or infinite values in 9 rows"),
        (np.array([[0.0, 1], [np.inf, 0], *[[k, k] for k in range(8)]]), {}, "NaN or infinite values in row 1"),
        (np.full((9, 2), 1e200), {}, "too large to square"),
        (np.zeros((1, 3)), {}, "at least 2 rows"),
        (np.zeros((9, 0)), {}, "1 column"),
        (np.zeros(9), {}, "table"),
        (points(), {"n_components": 5}, "n_components must lie between 1 and 4"),
        (points(), {"n_components": 0}, "n_components must lie between 1 and 4"),
    ],
)
def test_bad_features_are_refused(make, X, options, message):
    with pytest.raises(ValueError, match=message):
        make(X, **options)


@every_graph
def test_bad_new_features_are_refused(make):
    A = make(points())
    with pytest.raises(ValueError, match="X has 3 features, but the graph was made from 4"):
        A.to_new(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        A.to_new(np.full((1, 4), np.nan))


@every_graph
def test_sparse_features_need_a_projection(make):
    with pytest.raises(TypeError, match="n_components"):
        make(sparse.csr_array(points()))
    bad = points()
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*row 7"):
        make(sparse.csr_array(bad), n_components=2)


RECIPES = {
    "self_tuning": (graph.self_tuning, {"n_neighbors": 3}),
    "gaussian": (graph.gaussian, {"tau": 1.3, "n_components": 2}),
    "knn": (graph.knn, {"n_neighbors": 3}),
    "cosine": (graph.cosine, {}),
    "nystrom": (graph.nystrom, {"tau": 1.3, "n_landmarks": 10}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_without_features_a_constructor_is_a_recipe(name):
    make, settings = RECIPES[name]
    X = np.abs(points())
    direct, later, by_name = make(X, **settings), make(**settings)(X), make(X=X, **settings)
    for made in (later, by_name):
        assert type(made) is type(direct)
        np.testing.assert_array_equal(made.degrees, direct.degrees)
        for each in ("weights", "factor"):
            if hasattr(direct, each):
                np.testing.assert_array_equal(to_dense(getattr(made, each)), to_dense(getattr(direct, each)))
    with pytest.raises(TypeError, match="n_neighbours"):
        make(n_neighbours=3)


@pytest.mark.parametrize("n_neighbors", [0, 40, 100])
@pytest.mark.parametrize("make", [graph.self_tuning, graph.knn])
def test_n_neighbors_must_be_a_number_of_other_nodes(make, n_neighbors):
    with pytest.raises(ValueError, match="n_neighbors must lie between 1 and 39"):
        make(points(), n_neighbors=n_neighbors)


@pytest.mark.parametrize("tau", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize(
    "make",
    [
        lambda tau: graph.gaussian(points(), tau=tau),
        lambda tau: graph.knn(points(), weights=tau),
        lambda tau: graph.nystrom(points(), tau=tau, n_landmarks=5),
    ],
)
def test_tau_must_be_a_length(make, tau):
    with pytest.raises(ValueError, match=r"(tau|weights) must be a finite number above 0"):
        make(tau)


def test_distances_of_near_points_are_accurate():
    """Pairs 1e-7 apart: the product formula alone loses every digit of their distance."""
    X = np.repeat(points(20, 5), 2, axis=0)
    X[1::2] += 1e-7 * points(20, 5, seed=1)
    X[6] = X[7]
    exact = naive_squared_distances(X, X)
    np.testing.assert_allclose(squared_distances(X, X), exact, rtol=1e-10)
    assert squared_distances(X, X)[6, 7] == 0
    lengths = np.square(X).sum(axis=1)
    product = lengths[:, None] + lengths - 2 * X @ X.T
    off_diagonal = ~np.eye(len(X), dtype=bool)
    assert not np.allclose(product[off_diagonal], exact[off_diagonal], rtol=1e-10, atol=0)


def test_distances_of_listed_pairs():
    X, Y = points(30), points(20, seed=1)
    i, j = np.array([3, 3, 29]), np.array([0, 19, 7])
    lengths = np.square(X).sum(axis=1)[i] + np.square(Y).sum(axis=1)[j]
    np.testing.assert_allclose(
        pair_squared_distances(X, i, Y, j, lengths), naive_squared_distances(X, Y)[i, j], rtol=1e-14
    )


@pytest.mark.parametrize("convert", [np.array, sparse.csr_array, sparse.coo_matrix, sparse.csc_array])
def test_precomputed_weights_are_kept(convert):
    W = np.square(points(6, 6))
    W = W + W.T
    W[0, 1] = W[1, 0] = 0
    given = convert(W)
    A = graph.precomputed(given)
    np.testing.assert_array_equal(to_dense(A.weights), W)
    assert sparse.issparse(A.weights) == sparse.issparse(given)
    assert not sparse.issparse(given) or A.weights.nnz == 34


@pytest.mark.parametrize("convert", [np.array, sparse.csr_array])
def test_rounding_errors_of_precomputed_weights_are_removed(convert):
    W = np.ones((5, 5))
    W[0, 3] += 1e-12
    given = convert(W)
    A = to_dense(graph.precomputed(given).weights)
    np.testing.assert_array_equal(A, (W + W.T) / 2)
    np.testing.assert_array_equal(to_dense(given), W)  # what was given is not touched


@pytest.mark.parametrize("convert", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.ones((3, 4)), "square matrix, got the shape"),
        (np.ones((1, 1)), "at least two nodes"),
        ([[0, 1], [2, 0]], "symmetric, but a_ij and a_ji differ by up to 1"),
        ([[0, -1], [-1, 0]], "must not be negative, but the smallest is -1"),
        ([[0, np.nan], [np.nan, 0]], "NaN or infinite"),
        ([[0, np.inf], [np.inf, 0]], "NaN or infinite"),
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], "1 of 3 nodes are isolated.*node 2"),
        (np.zeros((4, 4)), "4 of 4 nodes are isolated"),
    ],
)
def test_bad_precomputed_weights_are_refused(convert, W, message):
    with pytest.raises(ValueError, match=message):
        graph.precomputed(convert(np.array(W, dtype=float)))


def test_precomputed_graphs_know_no_new_points():
    with pytest.raises(TypeError, match="give the weights of the new points"):
        graph.precomputed(np.ones((3, 3))).to_new(points(2))


def test_a_graph_is_printed_in_one_line():
    X = np.abs(points())
    assert repr(graph.gaussian(X, tau=1.3)) == "Graph(40 nodes, dense weights)"
    near = graph.knn(X, n_neighbors=5)
    assert repr(near) == f"Graph(40 nodes, {near.weights.nnz} sparse weights)"
    assert repr(graph.cosine(X)) == "LowRankGraph(40 nodes, weights of rank 4)"


def test_as_graph_takes_a_graph_or_a_matrix_but_no_low_rank_graph():
    A = graph.precomputed(np.ones((3, 3)))
    assert graph.as_graph(A) is A
    np.testing.assert_array_equal(graph.as_graph(np.ones((3, 3))).weights, A.weights)
    with pytest.raises(TypeError, match=r"spectrum\.low_rank"):
        graph.as_graph(graph.cosine(np.abs(points())))
