"""Simulated labelling at toy size: every tool asks rows that it may ask, and the page says what the record says."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from experiments import active, active_data, active_page, active_peers
from experiments.experiment import Record

from graphuq import datasets, queries

CONFIG = replace(
    active.QUICK, choosing=("toy",), reporting=("toy",), n_starts=1, n_answers=4, reported=("loss", "random")
)


def toy(name):
    moons = datasets.two_moons(80, noise=0.1, seed=0)
    return moons.X, (moons.y > 0).astype(np.int64)


@pytest.fixture
def _toy_data(monkeypatch):
    monkeypatch.setattr(active_data, "load", toy)


def test_the_default_is_the_one_that_is_reported():
    import inspect

    default = inspect.signature(queries.next_queries).parameters["strategy"].default
    assert f"graphuq, {default}" == active.DEFAULT
    assert not set(active_data.CHOOSING) & set(active_data.REPORTING)


@pytest.mark.parametrize("tool", ["graphuq, loss", "LogisticRegression, margin", "Gaussian process, margin"])
def test_a_tool_asks_open_rows_and_learns(tool):
    X, y = toy("toy")
    nodes = np.array([0, int(np.flatnonzero(y != y[0])[0])])
    pool = active_peers.Pool(X, nodes, y[nodes], np.setdiff1d(np.arange(40), nodes), 0)
    session = active_peers.sessions(("loss",))[tool](pool)
    p, row = next(session)
    asked = []
    for _ in range(5):
        assert p.shape == (80, 2)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        asked.append(row)
        p, row = session.send(int(y[row]))
    assert len(set(asked)) == 5
    assert set(asked) <= set(pool.open_rows)


@pytest.mark.usefixtures("_toy_data")
def test_from_trials_to_the_page(tmp_path):
    trials = active.trials(CONFIG)
    mine = [trial for trial in trials if trial["tool"].split(", ")[-1] in ("loss", "random", "margin")]
    mine = [
        trial
        for trial in mine
        if trial["tool"] != "graphuq, margin" and not trial["tool"].startswith("GraphLearning")
    ]
    results = [active.run(CONFIG, trial) for trial in mine]
    assert all(result["curve"].shape == (5, 2) for result in results)
    values = active.summarize(CONFIG, results)
    record = Record("active", "quick", asdict(CONFIG), values, 1.0, "0", "here")
    (goal, *_) = active.goals(record)
    assert goal["ours"] >= 2
    text = active_page.page(record, tmp_path)
    assert "| toy | 95% of the accuracy |" in text
    assert "| graphuq, random |" in text
    assert len(active.claims(record)) == 6
    active.draw(record).savefig(tmp_path / "active.png")


def test_a_level_counts_once_it_is_kept():
    assert active.labels_needed(np.array([0.5, 0.9, 0.6, 0.9, 0.95]), 0.85, 2) == 5
    assert active.labels_needed(np.array([0.5, 0.9, 0.9, 0.89, 0.95]), 0.9, 2) == 3
    assert active.labels_needed(np.array([0.5, 0.6]), 0.9, 2) is None
