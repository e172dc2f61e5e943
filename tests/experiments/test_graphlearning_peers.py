"""GraphLearning behind one interface: a stand-in for the package shows what it is handed; without it, rows say so."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from experiments import class_peers, graphlearning_peers, table_peers

from graphuq.graph import Graph


class Method:
    """Scores that are ones of the nearest label on a line of rows; remembers what it was told."""

    def __init__(self, W, shares=None):
        self.W, self.shares = W, shares
        told.append(shares)

    def fit(self, nodes, y):
        nearest = np.abs(np.arange(self.W.shape[0])[:, None] - nodes).argmin(axis=1)
        return np.eye(int(y.max()) + 1)[y[nearest]]


told: list = []


@pytest.fixture
def package(monkeypatch):
    told.clear()
    ssl = SimpleNamespace(laplace=Method, poisson=Method, poisson_mbo=Method)
    monkeypatch.setitem(sys.modules, "graphlearning", SimpleNamespace(ssl=ssl))


@pytest.fixture
def line():
    weights = np.diag(np.ones(19), 1)
    return Graph(weights + weights.T), np.repeat([0, 1], [12, 8])


def test_every_method_answers_and_only_one_is_told_the_true_shares(package, line):
    graph, y = line
    nodes = np.array([1, 5, 9, 13, 16])
    for name, peer in graphlearning_peers.peers(graph, np.array([0.7, 0.3])).items():
        scores = peer.score(nodes, y[nodes])
        assert scores.shape == (20, 2)
        np.testing.assert_array_equal(scores.argmax(axis=1)[nodes], y[nodes])
        tempered = class_peers.tempered(peer, nodes, y[nodes], scores, seed=0)
        if tempered is not None:
            np.testing.assert_allclose(tempered.sum(axis=1), 1)
        shares = [each for each in told if each is not None]
        if name == graphlearning_peers.TOLD:
            assert len(shares) == 1 + graphlearning_peers.FOLDS_OF_MBO
            np.testing.assert_allclose(shares, [[0.7, 0.3]] * len(shares))
        elif name == graphlearning_peers.MBO:
            np.testing.assert_allclose(shares, [[3 / 5, 2 / 5]])
        else:
            assert not shares
        told.clear()


def test_tables_get_its_lines_where_asked_for(package, line, monkeypatch):
    monkeypatch.setattr(table_peers, "TOOLS", {})  # those that work on features, and take long
    graph, y = line
    nodes = np.array([1, 5, 9, 13, 16])
    X = np.arange(20.0)[:, None] + np.random.default_rng(0).normal(size=(20, 1))
    task = table_peers.Task(X, graph, nodes, y[nodes], 0, np.array([0.6, 0.4]))
    without, given = (table_peers.probabilities(task, graphlearning=each) for each in (False, True))
    assert set(given) - set(without) == set(graphlearning_peers.LINES)
    assert all(np.allclose(p.sum(axis=1), 1) for p in given.values())


def test_what_is_missing_is_named():
    assert graphlearning_peers.missing({"graphuq": 1}) == list(graphlearning_peers.LINES)
    assert graphlearning_peers.missing({graphlearning_peers.LAPLACE: 1}) == []
    assert graphlearning_peers.missing([], graphlearning_peers.ACQUISITIONS) == list(
        graphlearning_peers.ACQUISITIONS
    )
