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
    assert all(result["curve"].shape == (4 * result.get("times", 1) + 1, 2) for result in results)
    (at_random,) = (
        each
        for each in results
        if each["tool"] == active.RANDOM and each["part"] == "reporting" and "times" not in each
    )
    (longer,) = (each for each in results if "times" in each)
    np.testing.assert_allclose(longer["curve"][:5], at_random["curve"])  # the same session goes on
    values = active.summarize(CONFIG, results)
    assert [each["n_labels_random"] for each in values["data"]] == [10, 6]
    record = Record("active", "quick", asdict(CONFIG), values, 1.0, "0", "here")
    (goal, *_) = active.goals(record)
    assert goal["ours"] >= 2
    text = active_page.page(record, tmp_path)
    assert "| toy | 95% of the accuracy |" in text
    assert "| graphuq, random |" in text
    assert len(active.claims(record)) == 6
    active.draw(record).savefig(tmp_path / "active.png")


def need(ours, at_random, n_labels_random):
    cell = {"part": "reporting", "data": "toy", "n_labels": 50, "n_labels_random": n_labels_random}
    needed = {active.DEFAULT: {"goal": ours}, active.RANDOM: {"goal": at_random}, "peer": {"goal": None}}
    (row,) = active.goals(Record("active", "quick", {}, {"data": [{**cell, "needed": needed}]}, 1.0, "0", "here"))
    return row


@pytest.mark.parametrize(
    ("ours", "at_random", "n_labels_random", "half", "shown"),
    [
        (20, 40, 50, True, "40"),
        (21, 40, 50, False, "40"),
        (20, None, 50, True, "> 50"),
        (40, None, 50, None, "> 50"),  # random may need 51 or 500
        (40, 79, 98, False, "79"),
        (40, None, 98, True, "> 98"),
        (None, None, 50, None, "> 50"),
        (None, 30, 50, False, "30"),
    ],
)
def test_half_of_random_is_judged_only_where_random_was_asked_for_long_enough(
    ours, at_random, n_labels_random, half, shown
):
    row = need(ours, at_random, n_labels_random)
    assert row["half"] is half
    assert active_page._needed(row)[3:5] == [shown, "> 50"]


def test_starts_are_those_of_all_tools():
    def trial(tool, seed, value, **more):
        curve = np.full((3, 2), value)
        return {
            "part": "reporting",
            "data": "toy",
            "tool": tool,
            "seed": seed,
            "n_first": 2,
            "curve": curve,
            **more,
        }

    results = [trial(active.DEFAULT, 0, 0.5), trial(active.DEFAULT, 2, 0.7), trial(active.DEFAULT, 3, 0.9)]
    results += [trial(active.RANDOM, seed, 0.5) for seed in (0, 1, 2)]
    results += [trial(active.RANDOM, 0, 0.5, times=2)]  # not of all starts: does not count
    (cell,) = active.summarize(CONFIG, results)["data"]
    assert (cell["n_starts"], cell["n_labels_random"]) == (2, 4)
    np.testing.assert_allclose(cell["curves"][active.DEFAULT], 0.6)


def test_a_level_counts_once_it_is_kept():
    assert active.labels_needed(np.array([0.5, 0.9, 0.6, 0.9, 0.95]), 0.85, 2) == 5
    assert active.labels_needed(np.array([0.5, 0.9, 0.9, 0.89, 0.95]), 0.9, 2) == 3
    assert active.labels_needed(np.array([0.5, 0.6]), 0.9, 2) is None


def test_our_curves_are_replaced_and_other_tools_keep_theirs(tmp_path):
    def cell(ours, n_starts, **others):
        curves = {active.DEFAULT: ours, active.RANDOM: [0.5, 0.6, 0.7], **others}
        means = {name: np.column_stack([curve, 1 - np.array(curve)]) for name, curve in curves.items()}
        about = {"part": "reporting", "data": "toy", "n_starts": n_starts, "n_first": 2}
        return active._cell({**about, "curves": means, "longer": means[active.RANDOM]})

    old, other = cell([0.5, 0.5, 0.7], 20, peer=[0.5, 0.9, 0.9]), {"part": "choosing", "data": "other"}
    new = cell([0.5, 0.8, 0.8], 12)
    merged, kept = active.merged({"data": [old, other]}, {"data": [new]})["data"]
    assert kept == other
    assert (merged["n_starts"], merged["n_starts_others"]) == (12, 20)
    assert merged["final_accuracy"] == 0.8  # of ours alone
    np.testing.assert_allclose(merged["curves"][active.DEFAULT], new["curves"][active.DEFAULT])
    np.testing.assert_allclose(merged["curves"]["peer"], old["curves"]["peer"])
    goal = "99% of the accuracy"
    assert (merged["needed"]["peer"][goal], merged["needed"][active.DEFAULT][goal]) == (3, 3)
    assert old["needed"][active.DEFAULT][goal] == 4
