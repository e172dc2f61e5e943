"""Baselines against dense linear algebra, closed forms on paths, and exact assignment."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from graphuq import baselines, graph
from graphuq.baselines import linear_system, poisson_learning
from graphuq.baselines.volumes import balance
from graphuq.datasets import two_moons, voting_records
from graphuq.spectrum.result import Spectrum
from tests.test_laplacian import random_weights

dense_and_sparse = pytest.mark.parametrize("convert", [np.array, sparse.csr_array, graph.precomputed])
every_method = pytest.mark.parametrize("method", [baselines.harmonic, baselines.poisson, baselines.mbo])
NODES = np.array([2, 19, 7, 11])
Y = np.array([0, 2, 1, 2])
ONE_HOT = np.eye(3)[Y]


def laplacian_of(W):
    return np.diag(W.sum(axis=1)) - W


def path(n_nodes):
    return sparse.diags_array([np.ones(n_nodes - 1)] * 2, offsets=[-1, 1]).tocsr()


def two_clusters(sizes, *, between=0.01, seed=0):
    """Random weights within two clusters, and a few small ones between."""
    first, second = (random_weights(n, seed=seed + i) for i, n in enumerate(sizes))
    W = sparse.block_diag([first, second]).toarray()
    i, j = np.arange(5), sizes[0] + np.arange(5)
    W[i, j] = W[j, i] = between
    return W


def spectrum_of(A, n_components=1):
    root = np.sqrt(A.degrees)
    values, vectors = np.linalg.eigh(np.eye(A.n_nodes) - A.weights / np.outer(root, root))
    return Spectrum(values, vectors, np.zeros(A.n_nodes), A.degrees, n_components, True, "numpy")


def test_fiedler_vector_of_the_voting_records():
    data = voting_records()
    labels = baselines.fiedler(spectrum_of(graph.gaussian(data.X, tau=1.25)))
    assert set(labels) == {-1, 1}
    right = np.mean(labels == data.y)
    assert max(right, 1 - right) == pytest.approx(0.88, abs=0.005)


def test_fiedler_vector_needs_a_connected_graph_and_two_modes():
    spectrum = spectrum_of(graph.precomputed(np.ones((4, 4))), n_components=2)
    with pytest.raises(ValueError, match="2 components"):
        baselines.fiedler(spectrum)
    one = Spectrum(np.zeros(1), np.ones((4, 1)) / 2, np.zeros(1), np.ones(4), 1, True, "numpy")
    with pytest.raises(ValueError, match="only one"):
        baselines.fiedler(one)


# What all methods with labels have in common


@dense_and_sparse
@every_method
def test_permuted_classes_permute_scores(method, convert):
    A, order = convert(random_weights()), np.array([2, 0, 1])
    scores = method(A, NODES, Y)
    assert scores.shape == (25, 3)
    np.testing.assert_allclose(method(A, NODES, order[Y])[:, order], scores, atol=1e-9)


@every_method
def test_permuted_nodes_permute_scores(method):
    W, order = random_weights(), np.random.default_rng(1).permutation(25)
    permuted = method(W[np.ix_(order, order)], np.argsort(order)[NODES], Y)
    np.testing.assert_allclose(permuted, method(W, NODES, Y)[order], atol=1e-9)


@every_method
def test_two_classes_may_be_called_minus_and_plus_one(method):
    W, y = random_weights(), np.array([0, 1, 1, 0])
    expected = method(W, NODES, y)
    for signs in (2 * y - 1, 2.0 * y - 1):
        np.testing.assert_array_equal(method(W, NODES, signs), expected)
        np.testing.assert_array_equal(method(W, NODES, signs, n_classes=2), expected)


@every_method
def test_a_class_without_labels_wins_nowhere(method):
    scores = method(random_weights(), NODES, Y, n_classes=5)
    assert scores.shape == (25, 5)
    np.testing.assert_allclose(scores[:, :3], method(random_weights(), NODES, Y), atol=1e-12)
    assert scores.argmax(axis=1).max() <= 2


@dense_and_sparse
@every_method
def test_classes_get_their_priors(method, convert):
    W = random_weights(300, share=0.03)
    nodes, shares = np.arange(30), np.array([0.2, 0.5, 0.3])
    scores = method(convert(W), nodes, nodes % 3, class_shares=100 * shares)
    np.testing.assert_allclose(np.bincount(scores.argmax(axis=1)) / 300, shares, atol=1.01 / 300)


@pytest.mark.parametrize("method", [baselines.harmonic, baselines.poisson])
def test_priors_only_shift_the_columns(method):
    difference = method(random_weights(), NODES, Y, class_shares=[1, 1, 1]) - method(random_weights(), NODES, Y)
    np.testing.assert_allclose(difference, np.broadcast_to(difference[0], (25, 3)), atol=1e-12)


@every_method
@pytest.mark.parametrize(
    ("nodes", "y", "settings", "message"),
    [
        ([], [], {}, "No labels"),
        ([0.5, 2], [0, 1], {}, "must be integers"),
        ([0, 25], [0, 1], {}, "Node 25 is not in the graph, whose nodes are 0 to 24"),
        ([-1, 2], [0, 1], {}, "row numbers from 0, got -1"),
        ([2, 2, 3], [0, 1, 1], {}, "Node 2 is given two different labels"),
        ([2, 3], [1], {}, "two lists of one length"),
        ([2, 3], [[1, 0], [0, 1]], {}, "two lists of one length"),
        ([2, 3], [1, np.nan], {}, "must be classes 0, 1, ..., or -1 and \\+1, got nan"),
        ([2, 3], [1, np.inf], {}, "must be classes 0, 1, ..., or -1 and \\+1, got inf"),
        ([2, 3], [0, 0.5], {}, "must be classes 0, 1, ..., or -1 and \\+1, got 0.5"),
        ([2, 3], ["a", "b"], {}, "y must be real numbers"),
        ([2, 3], [1, 1], {}, "Only one class, 1, is labeled"),
        ([2, 3], [1, 2], {}, "A label is 2, and 2 classes are numbered 0 to 1: give n_classes"),
        ([2, 3, 4], [-1, 0, 1], {}, "got -1 and 0 together"),
        ([2, 3], [0, 2], {"n_classes": 2}, "A label is 2, and 2 classes"),
        ([2, 3], [-1, 1], {"n_classes": 3}, "-1 and \\+1 are of two classes: number 3 classes from 0"),
        ([2, 3], [0, 1], {"class_shares": [1, 1, 1]}, "a share for each of 2 classes"),
        ([2, 3], [0, 1], {"class_shares": [2, -1]}, "none negative"),
        ([2, 3], [0, 1], {"class_shares": [1, np.nan]}, "none negative"),
        ([2, 3], [0, 1], {"n_classes": 3, "class_shares": [1, 1, 1]}, "must be 0 for a class that no node"),
    ],
)
def test_bad_labels_are_refused(method, nodes, y, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        method(random_weights(), nodes, y, **settings)


def test_lack_of_convergence_is_said(monkeypatch):
    monkeypatch.setattr(linear_system, "_MAX_STEPS", 2)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        baselines.harmonic(sparse.csr_array(random_weights()), NODES, Y)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        baselines.poisson(sparse.csr_array(random_weights()), NODES, Y)


def test_parts_of_a_graph_that_rounding_separates_are_said():
    """Far weights of 1e-100 are lost beside those of 1, and with them every label for the part that has none."""
    near = np.kron(np.eye(2, dtype=bool), np.ones((3, 3), dtype=bool))
    weights = np.where(near, 1.0, 1e-100)
    for method in (baselines.harmonic, baselines.poisson, baselines.mbo):
        with pytest.raises(ValueError, match="singular to rounding: parts of the graph hardly touch"):
            method(weights, [0, 1], [0, 1])
    with pytest.warns(RuntimeWarning, match="did not converge to a sum of 1: parts of the graph hardly touch"):
        baselines.harmonic(sparse.csr_array(weights), [0, 1], [0, 1])


def test_baselines_classify_two_moons():
    data = two_moons(600, n_features=20, noise=0.06)
    nodes = np.random.default_rng(0).choice(600, 18, replace=False)
    A = graph.knn(data.X, n_neighbors=20)  # with 10 the moons do not touch
    for method in (baselines.harmonic, baselines.poisson, baselines.mbo):
        classes = method(A, nodes, data.y[nodes]).argmax(axis=1)
        assert np.mean(classes == (data.y > 0)) > 0.95


@pytest.mark.parametrize("unit", [1e-200, 1e100])
@dense_and_sparse
def test_the_unit_of_the_weights_does_not_matter(convert, unit):
    W = random_weights()
    of_one, of_unit = (baselines.harmonic(convert(each), NODES, Y) for each in (W, unit * W))
    np.testing.assert_allclose(of_unit, of_one, atol=1e-10)
    of_one, of_unit = (baselines.poisson(convert(each), NODES, Y) for each in (W, unit * W))
    np.testing.assert_allclose(of_unit * unit, of_one, atol=1e-10)


# Harmonic functions


@dense_and_sparse
def test_hard_harmonic_function(convert):
    W = random_weights(diagonal=True)
    L = laplacian_of(W)
    free = np.setdiff1d(np.arange(25), NODES)
    u = baselines.harmonic(convert(W), NODES, Y)
    np.testing.assert_array_equal(u[NODES], ONE_HOT)
    expected = -np.linalg.inv(L[np.ix_(free, free)]) @ L[np.ix_(free, NODES)] @ ONE_HOT
    np.testing.assert_allclose(u[free], expected, atol=1e-10)
    np.testing.assert_allclose((L @ u)[free], 0, atol=1e-10)
    np.testing.assert_allclose(u.sum(axis=1), 1)
    assert u.min() >= -1e-10


def test_harmonic_function_is_linear_between_labels_of_a_path():
    u = baselines.harmonic(path(11), [2, 8], [0, 1])
    expected = np.clip((np.arange(11) - 2) / 6, 0, 1)
    np.testing.assert_allclose(u, np.column_stack([1 - expected, expected]), atol=1e-12)


@dense_and_sparse
def test_all_nodes_labeled(convert):
    y = np.arange(25) % 4
    np.testing.assert_array_equal(baselines.harmonic(convert(random_weights()), np.arange(25), y), np.eye(4)[y])


@dense_and_sparse
def test_every_component_needs_a_label(convert):
    A = convert(sparse.block_diag([random_weights(10), random_weights(8), random_weights(9)]).toarray())
    with pytest.raises(ValueError, match="2 of 3 components of the graph have no label"):
        baselines.harmonic(A, [0, 3], [1, -1])
    baselines.harmonic(A, [0, 10, 18], [1, -1, 1])


# Poisson learning


@dense_and_sparse
def test_poisson_is_the_pseudo_inverse(convert):
    W = random_weights(diagonal=True)
    b = np.zeros((25, 3))
    b[NODES] = ONE_HOT - ONE_HOT.mean(axis=0)
    d = W.sum(axis=1) - np.diag(W)
    expected = np.linalg.pinv(laplacian_of(W)) @ b
    expected -= d @ expected / d.sum()
    u = baselines.poisson(convert(W), NODES, Y)
    np.testing.assert_allclose(u, expected, atol=1e-11)
    np.testing.assert_allclose(d @ u, 0, atol=1e-11)
    np.testing.assert_allclose(u.sum(axis=1), 0, atol=1e-11)


@pytest.mark.parametrize("convert", [sparse.csr_array, lambda A: A.toarray()])
@pytest.mark.parametrize("n_nodes", [12, 1001])
def test_poisson_on_a_path(convert, n_nodes):
    """A current of 1/2 flows from the label 1 to the label 0, and none beyond them."""
    low, high = 2, n_nodes - 4
    u = baselines.poisson(convert(path(n_nodes)), [low, high], [0, 1])
    expected = np.clip(np.arange(n_nodes), low, high) / 2
    d = np.r_[1, np.full(n_nodes - 2, 2), 1]
    expected -= d @ expected / d.sum()
    np.testing.assert_allclose(u, np.column_stack([-expected, expected]), atol=1e-12 * n_nodes**2)


def test_two_classes_are_the_sign_of_the_scalar_problem():
    W, y = random_weights(), np.array([-1.0, 1.0, 1.0, 1.0])
    b = np.zeros(25)
    b[NODES] = y - y.mean()
    v = np.linalg.pinv(laplacian_of(W)) @ b
    v -= W.sum(axis=1) @ v / W.sum()
    u = baselines.poisson(W, NODES, y)
    np.testing.assert_allclose(u[:, 1] - u[:, 0], v, atol=1e-11)
    np.testing.assert_array_equal(u.argmax(axis=1), v > 0)


@pytest.mark.parametrize("method", [baselines.poisson, baselines.mbo])
@dense_and_sparse
def test_poisson_learning_needs_a_connected_graph(method, convert):
    A = convert(sparse.block_diag([random_weights(10), random_weights(8)]).toarray())
    with pytest.raises(ValueError, match="falls into 2 components"):
        method(A, [0, 12], [0, 1])


# Threshold dynamics


@dense_and_sparse
def test_one_round_of_threshold_dynamics(convert, monkeypatch):
    """Powers of ``P = I - dt L``: ``P^n e + (I + P + ... + P^{n-1}) dt b``."""
    W, n_steps = random_weights(diagonal=True), 7
    monkeypatch.setattr(poisson_learning, "N_ROUNDS", 1)
    monkeypatch.setattr(poisson_learning, "N_STEPS", n_steps)
    L = laplacian_of(W)
    dt = 1 / np.diag(L).max()
    b = np.zeros((25, 3))
    b[NODES] = ONE_HOT - ONE_HOT.mean(axis=0)
    powers = [np.linalg.matrix_power(np.eye(25) - dt * L, m) for m in range(n_steps + 1)]
    start = np.eye(3)[baselines.poisson(W, NODES, Y).argmax(axis=1)]
    expected = powers[-1] @ start + dt * sum(powers[:-1]) @ b
    scores = baselines.mbo(convert(W), NODES, Y)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_threshold_dynamics_end_where_no_class_changes(monkeypatch):
    W = two_clusters((40, 20), between=0.3)
    found = []
    for n_rounds in (20, 1_000, 1):
        monkeypatch.setattr(poisson_learning, "N_ROUNDS", n_rounds)
        found.append(baselines.mbo(W, [1, 7, 45], [0, 0, 1], class_shares=[1, 1]))
    np.testing.assert_array_equal(found[1], found[0])
    assert np.abs(found[2] - found[0]).max() > 0.01


@dense_and_sparse
@pytest.mark.parametrize("priors", [None, [40, 20]])
def test_threshold_dynamics_find_two_clear_clusters(convert, priors):
    truth = np.repeat([0, 1], [40, 20])
    nodes = [1, 7, 45]
    scores = baselines.mbo(convert(two_clusters((40, 20))), nodes, truth[nodes], class_shares=priors)
    np.testing.assert_array_equal(scores.argmax(axis=1), truth)


def test_threshold_dynamics_move_the_boundary_of_a_path_to_the_priors():
    """Of two labels at its ends, the shortest boundary is one edge: its place is the volume alone."""
    for n_first in (12, 20, 33):
        scores = baselines.mbo(path(40), [0, 39], [0, 1], class_shares=[n_first, 40 - n_first])
        size = np.count_nonzero(scores.argmax(axis=1) == 0)
        np.testing.assert_array_equal(scores.argmax(axis=1), np.arange(40) >= size)
        assert abs(size - n_first) <= 1


# Class sizes


@pytest.mark.parametrize("sizes", [(30, 30), (50, 10), (20, 20, 20), (5, 15, 40), (6, 0, 24, 30)])
def test_shifts_give_the_best_assignment_of_these_sizes(sizes):
    """Shifts are the prices of a transport problem, so the sum of the winning scores is the largest there is."""
    u, start = np.random.default_rng(3).normal(size=(60, len(sizes))), np.zeros(len(sizes))
    winner = (u + balance(u, np.array(sizes) / 60, start=start)).argmax(axis=1)
    counts = np.bincount(winner, minlength=len(sizes))
    assert np.abs(counts - sizes).max() <= 1
    seats = np.repeat(u, counts, axis=1)
    best = seats[linear_sum_assignment(seats, maximize=True)].sum()
    assert u[np.arange(60), winner].sum() == pytest.approx(best, rel=1e-12)
    assert not start.any()


def test_sizes_that_no_shift_can_give_are_told():
    with pytest.warns(RuntimeWarning, match="class_shares are missed by up to 0.2"):
        balance(np.zeros((100, 2)), np.array([0.8, 0.2]))
