"""The table of calibration: measures by hand, and one small row from end to end."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from experiments import calibration
from experiments import calibration_peers as peers
from experiments.experiment import Record
from experiments.runner import plain
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from graphuq import graph, laplacian, spectrum
from graphuq.learning import learn
from graphuq.models import Probit

SMALL = replace(calibration.QUICK, data=("digits 39",), n_labels=(10,), n_draws=2, graphlearning=False)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], 30)
    return y, graph.knn(rng.normal(size=(60, 2)) + 2.5 * y[:, None], n_neighbors=8)


@pytest.fixture(scope="module")
def record():
    results = [calibration.run(SMALL, trial) for trial in calibration.trials(SMALL)]
    doublings = {"learned": [0.01, 0.005], "paper": [0.1, 0.09]}
    values = calibration.summarize(SMALL, plain([*results, doublings]))
    return Record("calibration", "quick", plain(asdict(SMALL)), plain(values), 60.0, "0", "a machine")


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    p, y = rng.random(200), rng.choice([-1, 1], 200)
    right = (p >= 0.5) == (y > 0)
    accuracy, loss, brier, _, auroc = calibration.measure(p, y)
    assert accuracy == pytest.approx(right.mean())
    assert loss == pytest.approx(log_loss(y > 0, p))
    assert brier == pytest.approx(brier_score_loss(y > 0, p))
    assert auroc == pytest.approx(roc_auc_score(right, np.maximum(p, 1 - p)))
    assert calibration._auroc(p, y > 0) == pytest.approx(roc_auc_score(y > 0, p))


def test_pooled_bins_are_the_diagram_of_all_nodes():
    rng = np.random.default_rng(2)
    p, y = rng.random(300), rng.choice([-1, 1], 300)
    halves = [calibration._bins(p[part], y[part]) for part in (slice(None, 100), slice(100, None))]
    found, expected = calibration.pooled(np.add(*halves)), calibration.reliability(p, y)
    assert found.ece == pytest.approx(expected.ece)
    np.testing.assert_allclose(found.confidence, expected.confidence)
    np.testing.assert_allclose(found.frequency, expected.frequency)


def test_averages_are_those_of_learn(blobs):
    y, weights = blobs
    nodes = np.array([0, 9, 31, 50])
    learned = learn(spectrum.dense(laplacian.normalized(weights)), Probit(nodes, y[nodes]))
    others = np.setdiff1d(np.arange(60), nodes)
    found = calibration.averaged(learned)
    s = learned.posterior.label_mean(others)
    np.testing.assert_allclose(found[calibration.OURS][others], (1 + s) / 2)
    noise = np.abs(found[calibration.VARIANTS[0]] - 0.5)
    assert (noise[others] <= np.abs(found[calibration.OURS] - 0.5)[others] + 0.02).all()


def test_peers_see_the_graph_and_find_two_blobs(blobs):
    y, weights = blobs
    nodes = np.array([0, 4, 9, 13, 31, 38, 50, 57])
    for name, score in peers.scorers(weights, graphlearning=False).items():
        found = score(nodes, y[nodes].astype(float))
        assert np.mean((found > 0) == (y > 0)) > 0.95, name
        p = peers.tempered(score, nodes, y[nodes].astype(float), found, seed=0)
        np.testing.assert_array_equal(p > 0.5, found > 0)
    p = peers.gaussian_process(weights.features.points, nodes, y[nodes].astype(float))
    assert np.mean((p > 0.5) == (y > 0)) > 0.95


def test_temperature_is_low_where_held_out_labels_are_missed():
    y = np.tile([1.0, -1.0], 20)
    nodes = np.arange(40)

    def guess(some, labels):
        return np.random.default_rng(len(some)).normal(size=40)

    def knows(some, labels):
        return y

    unsure, sure = (peers.tempered(score, nodes, y, score(nodes, y), seed=0) for score in (guess, knows))
    assert np.abs(unsure - 0.5).mean() < 0.2
    assert (np.where(y > 0, sure, 1 - sure) > 0.99).all()


def test_a_row_is_reproducible(record):
    trial = calibration.trials(SMALL)[0]
    first, again = (plain(calibration.run(SMALL, trial)) for _ in range(2))
    assert first == again
    assert first["scores"].keys() == record.values["rows"][0]["scores"].keys()


def test_claims_and_figure_come_from_the_record(record):
    claims = calibration.claims(record)
    assert len(claims) == len(record.values["rows"]) == 2
    assert all(claim.agrees is None for claim in claims)
    row = record.values["rows"][0]
    best, theirs, ours, _ = calibration.contest(row, "log_loss")
    assert theirs == min(
        each["log_loss"][0] for name, each in row["scores"].items() if not calibration.is_ours(name)
    )
    assert ours == row["scores"][calibration.OURS]["log_loss"][0]
    assert best in claims[0].ours
    assert calibration.draw(record).axes
