"""Ten digits: other tools on three blobs, temperatures by hand, and a small record from end to end."""

from dataclasses import asdict

import numpy as np
import pytest
from experiments import class_peers, digits_ten
from experiments.experiment import Record
from experiments.runner import plain
from sklearn.metrics import log_loss

from graphuq import GraphClassifier, graph

SMALL = digits_ten.Config(per_class=(1, 3), n_draws=2, graphlearning=False)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 25)
    centers = np.array([[0.0, 0.0], [3.5, 0.0], [0.0, 3.5]])
    return centers[y] + rng.normal(size=(75, 2)), y


@pytest.fixture
def few(blobs, monkeypatch):
    monkeypatch.setattr(digits_ten, "digits", lambda: blobs)


def test_labels_are_drawn_from_every_class(blobs):
    _, y = blobs
    nodes = digits_ten.choose(y, 4, 7)
    np.testing.assert_array_equal(np.bincount(y[nodes]), [4, 4, 4])
    assert np.unique(nodes).size == 12
    assert not np.array_equal(nodes, digits_ten.choose(y, 4, 8))


def test_every_tool_finds_the_blobs_and_reads_as_probabilities(blobs):
    X, y = blobs
    nodes = digits_ten.choose(y, 5, 0)
    for name, peer in class_peers.peers(graph.knn(X, n_neighbors=8), X, np.full(3, 1 / 3)).items():
        scores = peer.score(nodes, y[nodes])
        assert np.mean(scores.argmax(axis=1) == y) > 0.9, name
        if peer.read is not None:
            p = peer.read(scores)
            np.testing.assert_allclose(p.sum(axis=1), 1)
            assert p.min() >= 0
            np.testing.assert_array_equal(p.argmax(axis=1), scores.argmax(axis=1))
        tempered = class_peers.tempered(peer, nodes, y[nodes], scores, seed=0)
        np.testing.assert_array_equal(tempered.argmax(axis=1), scores.argmax(axis=1))


def test_rows_that_no_label_reaches_are_even():
    np.testing.assert_allclose(
        class_peers.clipped(np.array([[0.0, 0.0], [np.nan, 2.0], [-1.0, 3.0]])), [[0.5, 0.5], [0, 1], [0, 1]]
    )


def test_the_temperature_suits_what_held_out_labels_say():
    y = np.tile(np.arange(3), 20)
    nodes = np.arange(60)
    knows = class_peers.Peer(lambda some, labels: np.eye(3)[y])
    guesses = class_peers.Peer(lambda some, labels: np.random.default_rng(len(some)).normal(size=(60, 3)))
    sure, unsure = (class_peers.tempered(p, nodes, y, p.score(nodes, y), seed=0) for p in (knows, guesses))
    assert sure[np.arange(60), y].min() > 0.99
    assert np.abs(unsure - 1 / 3).mean() < 0.1


def test_one_label_a_class_leaves_none_to_hold_out():
    peer = class_peers.Peer(lambda some, labels: np.eye(3))
    assert class_peers.tempered(peer, np.arange(3), np.arange(3), np.eye(3), seed=0) is None


def test_ones_and_zeros_have_no_temperature():
    y = np.repeat(np.arange(3), 4)
    peer = class_peers.Peer(lambda some, labels: np.eye(3)[y], has_scores=False)
    assert class_peers.tempered(peer, np.arange(12), y, np.eye(3)[y], seed=0) is None


def test_our_temperature_is_that_of_the_labels_left_out(blobs):
    X, y = blobs
    nodes = digits_ten.choose(y, 4, 1)
    given = np.full(len(y), -1)
    given[nodes] = y[nodes]
    fitted = GraphClassifier(n_neighbors=8).fit(X, given)
    left_out, truth = fitted.posterior_.left_out(), fitted.posterior_.model.y

    def loss(log_t):
        powers = left_out ** np.exp(-log_t)
        p = powers / powers.sum(axis=1, keepdims=True)
        return log_loss(truth, p, labels=[0, 1, 2]) * len(truth) + (log_t / digits_ten.SPREAD) ** 2 / 2

    grid = np.linspace(-1, 1, 2001)
    best = np.exp(grid[np.argmin([loss(x) for x in grid])])
    powers = fitted.label_distributions_ ** (1 / best)
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(digits_ten.left_out_temperature(fitted), expected, atol=1e-3)


@pytest.fixture
def record(few):
    results = [digits_ten.run(SMALL, trial) for trial in digits_ten.trials(SMALL)]
    values = digits_ten.summarize(SMALL, plain(results))
    return Record("digits_ten", "quick", plain(asdict(SMALL)), plain(values), 60.0, "0", "a machine")


def test_a_record_becomes_claims_a_figure_and_a_page(record):
    one, three = record.values["rows"]
    assert "graphuq + T" not in one["scores"]
    assert "graphuq + T" in three["scores"]
    claims = digits_ten.claims(record)
    assert len(claims) == 2 * len(digits_ten.MEASURES)
    assert all(claim.agrees is None for claim in claims)
    assert len(digits_ten.draw(record).axes) == len(digits_ten.MEASURES)
    text = digits_ten.page(record, "reproduction")
    losses = {name: each["log_loss"][0] for name, each in three["scores"].items() if "log_loss" in each}
    best = min(losses, key=losses.get)
    assert f"**{losses[best]:.3f}**" in next(
        line for line in text.split("## log-loss")[1].splitlines() if line.startswith(f"| {best} |")
    )
    others = {name: loss for name, loss in losses.items() if not name.startswith("graphuq")}
    assert digits_ten.best_other(three, "log_loss") == min(others, key=others.get)
