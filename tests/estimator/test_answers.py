"""Features in a store give the answers of the same features in memory, block by block, and go on where they were stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from graphuq import GraphClassifier, graph, prior
from graphuq import tall as talls
from graphuq._expect import RowError
from graphuq.app import folder as models
from graphuq.estimator import answers
from graphuq.graph import neighbors
from graphuq.large import passes, stores, sums
from graphuq.large.passes import SchedulerLost, cluster
from graphuq.large.sums import kept_sums
from graphuq.posterior import GaussianPosterior, gaussian
from graphuq.tall import tall
from tests.decay import decayed

zarr = pytest.importorskip("zarr")
parquet = pytest.importorskip("pyarrow.parquet")
cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N = 400
rng = np.random.default_rng(0)
TRUTH = rng.integers(0, 2, N)
X = np.abs(rng.standard_normal((N, 4)) + 2 * TRUTH[:, None] * [1, 0, 1, 0]) + 0.1
Y = np.where(np.arange(N) % 20 == 0, TRUTH, -1)
QUICK = {"graph": "cosine", "prior": "matern", "inference": "ep"}  # nothing to learn


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(talls, "_BLOCK_BYTES", 50 * 4 * 8)  # fifty rows


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


@pytest.fixture(scope="module")
def known():
    return GraphClassifier(graph="cosine").fit(X, Y)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_sees_every_node_answers_all_of_them():
    some = slice(0, 120)
    settings = {"graph": "cosine", "prior": "full", "model": "ginzburg_landau", "n_steps": 60, "random_state": 0}
    classifier = GraphClassifier(**settings).fit(tall(X[some]), Y[some])
    exact = classifier.posterior_.classes(np.arange(120)).probability
    np.testing.assert_allclose(classifier.label_distributions_, exact, atol=1e-12)


def test_a_store_has_no_names_of_columns_not_even_those_of_a_table_before(file):
    classifier = GraphClassifier(**QUICK).fit(pd.DataFrame(X, columns=list("abcd")), Y)
    classifier.fit(tall(file), Y)
    assert not hasattr(classifier, "feature_names_in_")
    classifier.predict(X[:1] + 0.1)  # and does not warn of them


def of_file(folder):
    np.save(folder / "x.npy", X)
    return tall(folder / "x.npy")


def of_zarr(folder):
    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(30, 2), dtype=float)
    array[:] = X
    return array


def of_dask(folder):
    import dask.array

    return dask.array.from_array(X, chunks=((20, 3, 160, 217), (2, 2)))


def of_parquet(folder):
    import pyarrow

    parquet.write_table(
        pyarrow.table({f"x{k}": X[:, k] for k in range(4)}), folder / "x.parquet", row_group_size=70
    )
    return tall(folder)


@pytest.mark.parametrize("store", [of_file, of_zarr, of_dask, of_parquet])
def test_answers_are_those_in_memory(store, tmp_path, known):
    found = GraphClassifier(graph="cosine").fit(store(tmp_path), Y)
    np.testing.assert_allclose(found.label_distributions_, known.label_distributions_, atol=1e-10)
    np.testing.assert_array_equal(found.transduction_, known.transduction_)
    new = X[:7] + 0.05
    np.testing.assert_allclose(found.predict_proba(new), known.predict_proba(new), atol=1e-10)
    assert found.hyperparameters_ == pytest.approx(known.hyperparameters_, rel=1e-6)


def test_rows_that_are_asked_for_again_and_again_are_read_once(tmp_path, monkeypatch):
    """Each may cost a whole row group: four passes, the rows that stand for all, the first ones, and the answers."""
    monkeypatch.setattr(talls, "SPREAD_ROWS", 50)
    read, plain = [], stores.Grouped._group
    monkeypatch.setattr(stores.Grouped, "_group", lambda self, number: read.append(number) or plain(self, number))
    GraphClassifier(graph="cosine").fit(of_parquet(tmp_path), Y).write_proba(tmp_path / "out")
    assert max(np.bincount(read)) <= 7


@pytest.mark.parametrize(
    "settings",
    [
        {"graph": "nystrom", "width": 2.0},
        {
            "graph": graph.nystrom(tau=2.0, n_landmarks=40),
            "prior": "matern",
            "inference": "ep",
        },
        {"graph": "knn"},
        {"graph": "cosine", "prior": "approximate", "inference": "ep"},  # a tail: labeled rows are not like others
        {"graph": "cosine", "prior": "matern", "inference": "sample", "n_steps": 20, "n_chains": 2},
    ],
    ids=["nystrom", "few landmarks", "knn", "approximate", "draws"],
)
@pytest.mark.filterwarnings("ignore")
def test_other_graphs_and_priors(settings, file):
    whole = GraphClassifier(**settings).fit(X, Y)
    found = GraphClassifier(**settings).fit(tall(file), Y)
    np.testing.assert_allclose(found.label_distributions_, whole.label_distributions_, atol=1e-6)
    np.testing.assert_allclose(found.label_errors_, whole.label_errors_, atol=1e-6)
    new = X[:7] + 0.05
    np.testing.assert_allclose(found.predict_proba(new), whole.predict_proba(new), atol=1e-6)


def test_many_classes_are_asked_in_single_precision_unless_noise_is_small(file, monkeypatch):
    y = np.where(np.arange(N) % 20 == 0, np.arange(N) // 20 % 5, -1)
    single = GraphClassifier(graph="cosine").fit(tall(file), y).label_distributions_
    monkeypatch.setattr(gaussian, "LEAST_BLUR", np.inf)
    double = GraphClassifier(graph="cosine").fit(tall(file), y).label_distributions_
    assert 0 < np.abs(single - double).max() < 1e-4


def test_three_classes_and_more_labels(file):
    y = np.where(np.arange(N) % 20 == 0, np.arange(N) // 20 % 3, -1)
    whole, found = (GraphClassifier(graph="cosine").fit(each, y) for each in (X, tall(file)))
    np.testing.assert_allclose(found.label_distributions_, whole.label_distributions_, atol=1e-6)
    for each in (whole, found):
        each.partial_fit_labels([3, 5], [0, 1])
    np.testing.assert_allclose(found.label_distributions_, whole.label_distributions_, atol=1e-6)


@pytest.mark.parametrize("name", ["out", "out.ZARR"])
def test_a_second_call_goes_on_where_the_first_was_stopped(name, file, tmp_path, monkeypatch):
    known = GraphClassifier(**QUICK).fit(X, Y)
    fitted = GraphClassifier(**QUICK).fit(tall(file), Y)
    out, asked = tmp_path / name, []
    plain = answers._Ask.__call__

    def stopped(self, rows, basis):
        if rows.start >= 150:
            raise KeyboardInterrupt
        return plain(self, rows, basis)

    def counted(self, rows, basis):
        asked.append(rows.start)
        return plain(self, rows, basis)

    monkeypatch.setattr(answers._Ask, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        fitted.write_proba(out)
    monkeypatch.setattr(answers._Ask, "__call__", counted)
    assert fitted.write_proba(out) == out
    assert sorted(asked) == [150, 200, 250, 300, 350]
    if name == "out":
        table = parquet.read_table(out)
        assert table.column_names == ["row", "class", "probability", "p_0", "p_1"]
        found = np.column_stack([table["p_0"], table["p_1"]])
        np.testing.assert_array_equal(table["row"], np.arange(N))
        np.testing.assert_array_equal(table["class"], known.transduction_)
        np.testing.assert_array_equal(table["probability"], found.max(axis=1))
    else:
        array = zarr.open_array(out, mode="r")
        found = array[:]
        assert array.attrs["classes"] == [0, 1]
    np.testing.assert_allclose(found, known.label_distributions_, atol=1e-10)
    asked.clear()
    fitted.write_proba(out)
    assert not asked


@pytest.mark.parametrize("n_lines", [0, 1, 3])
def test_a_line_of_the_ledger_that_was_cut_off_spoils_no_other(n_lines, file, tmp_path):
    """As a full disk leaves it: the call after the one that goes on finds all blocks too."""
    fitted = GraphClassifier(**QUICK).fit(tall(file), Y)
    ledger = fitted.write_proba(tmp_path / "out") / answers.LEDGER
    whole = ledger.read_bytes()
    lines = whole.splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:n_lines]) + lines[n_lines][:5])
    for _ in range(2):
        fitted.write_proba(tmp_path / "out")
        assert ledger.read_bytes() == whole


def test_what_a_killed_call_left_stays_ours_though_the_next_one_fails(file, tmp_path, monkeypatch):
    fitted = GraphClassifier(**QUICK).fit(tall(file), Y)
    out = fitted.write_proba(tmp_path / "out")
    whole = (out / answers.LEDGER).read_bytes()
    (out / answers.LEDGER).write_bytes(b"")  # killed after a block was written, before that was noted
    with monkeypatch.context() as full:
        full.setattr(answers, "check_disk", Mock(side_effect=OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            fitted.write_proba(out)
    assert (fitted.write_proba(out) / answers.LEDGER).read_bytes() == whole


def test_answers_of_another_version_are_kept_or_replaced(file, tmp_path):
    fitted = GraphClassifier(**QUICK).fit(tall(file), Y)
    ledger = fitted.write_proba(tmp_path / "out") / answers.LEDGER
    whole = ledger.read_bytes()
    before = json.dumps(json.loads(whole.split(b"\n")[0]) | {"form": "graphuq answers 4"})
    ledger.write_text(f"{before}\n0 00000000 12345678\n")
    with pytest.raises(ValueError, match=r"holds the answers of another fit, or of other rows: choose another"):
        fitted.write_proba(tmp_path / "out")
    fitted.write_proba(tmp_path / "out", force=True)
    assert ledger.read_bytes() == whole


def test_answers_of_another_fit_are_kept(file, tmp_path):
    first, other = (GraphClassifier(**QUICK, gamma=gamma).fit(tall(file), Y) for gamma in (None, 0.5))
    out = first.write_proba(tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds the answers of another fit"):
        other.write_proba(out)
    other.write_proba(out, force=True)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], other.label_distributions_[:, 1], atol=1e-12)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"something that graphuq did not write"):
            other.write_proba(tmp_path / "mine", force=force)
    with pytest.raises(ValueError, match=r"is a file, where a folder is needed"):
        other.write_proba(file)


def test_answers_of_other_rows_draws_or_hyperparameters_are_kept(tmp_path):
    """Settings and labels are the same each time."""
    settings = {"graph": "cosine", "prior": "matern", "inference": "ep", "n_steps": 20, "n_chains": 2}
    first, same, other = (GraphClassifier(**settings).fit(rows, Y) for rows in (X, X.copy(), X[::-1]))
    out = first.write_proba(tmp_path / "out")
    assert same.write_proba(out) == out  # another fit of the same goes on
    noisier = GraphClassifier(**settings).fit(X, Y)
    noisier.posterior_ = GaussianPosterior.of(first.posterior_.prior, replace(first.posterior_.model, gamma=0.11))
    for each in (other, noisier, same.draw()):
        with pytest.raises(ValueError, match=r"holds the answers of another fit"):
            each.write_proba(out)
    other.write_proba(out, force=True)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], other.label_distributions_[:, 1], atol=1e-12)


def test_what_a_drawn_average_is_of_is_not_sent_to_other_processes(known):
    """It has the matrix of all rows, and answers need none of it."""
    drawn = copy(known)
    drawn.posterior_ = replace(known.posterior_, drawn_from=known.posterior_)
    sizes = [len(cloudpickle.dumps(answers._question(each)[1])) for each in (known, drawn)]
    assert sizes[0] == sizes[1] < len(cloudpickle.dumps(drawn.posterior_))


def test_features_in_memory_are_written_too(tmp_path, known):
    out = known.write_proba(tmp_path / "out")
    np.testing.assert_array_equal(parquet.read_table(out)["p_1"], known.label_distributions_[:, 1])


@pytest.mark.filterwarnings("ignore:.*rows lie in parts")
def test_equal_rows_in_memory_are_written_as_they_are_predicted(tmp_path):
    """Which is their average; the rows of a store are not compared, so that each has the answer of its node."""
    few = np.random.default_rng(0).integers(0, 3, (150, 3)).astype(float)
    y = np.where(np.arange(150) < 20, few.sum(axis=1) > 3, -1)
    settings = {"prior": "matern", "inference": "ep"}
    known = GraphClassifier(**settings).fit(few, y)
    table = parquet.read_table(known.write_proba(tmp_path / "out"))
    assert np.array_equal(np.column_stack([table["p_0"], table["p_1"]]), known.predict_proba(few))
    np.save(tmp_path / "few.npy", few)
    stored = GraphClassifier(**settings).fit(tall(tmp_path / "few.npy"), y)
    of_nodes = known.posterior_.probability()
    np.testing.assert_allclose(stored.label_distributions_, of_nodes, atol=1e-6)
    assert np.abs(of_nodes - known.label_distributions_).max() > 0.01


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (
            np.array(["2020-01-01", "2021-01-01"], "M8[ns]"),
            [f"{year}-01-01T00:00:00.000000000" for year in (2020, 2021)],
        ),
        (np.array(["2020", "2021"], "M8[Y]"), ["2020", "2021"]),
        ([date(2020, 1, 1), date(2021, 1, 1)], ["2020-01-01", "2021-01-01"]),
        (np.array([1, 2], "m8[h]"), ["1 hours", "2 hours"]),
        (np.array([2**63, 2**63 + 1], np.uint64), [2**63, 2**63 + 1]),
        (np.array([False, True]), [False, True]),
    ],
)
def test_classes_are_written_as_what_they_are(classes, expected, tmp_path):
    y = np.full(N, None, dtype=object)
    y[Y >= 0] = [classes[k] for k in Y[Y >= 0]]
    fitted = GraphClassifier(**QUICK).fit(X, y)
    table = parquet.read_table(fitted.write_proba(tmp_path / "out"))
    assert set(table["class"].to_pylist()) == set(expected)
    assert table.column_names[3:] == [f"p_{name}" for name in expected]
    stored = zarr.open_array(fitted.write_proba(tmp_path / "out.zarr"), mode="r")
    assert stored.attrs["classes"] == expected


@pytest.mark.parametrize("kind", ["cosine", "knn"])
@pytest.mark.parametrize("name", ["out", "out.zarr"])
def test_new_rows_in_a_store_are_written_block_by_block(kind, name, file, tmp_path, monkeypatch):
    """Three of them are rows of the fit; the oracle is `predict_proba`, all at once."""
    new = np.vstack([X[:3], X[:170] + 0.05])
    np.save(tmp_path / "new.npy", new)
    fitted = GraphClassifier(graph=kind, prior="matern", inference="ep").fit(X if kind == "knn" else tall(file), Y)
    out = fitted.write_proba(tmp_path / name, tmp_path / "new.npy")
    table = None if name.endswith("zarr") else parquet.read_table(out)
    found = zarr.open_array(out, mode="r")[:] if table is None else np.column_stack([table["p_0"], table["p_1"]])
    np.testing.assert_allclose(found, fitted.predict_proba(new), atol=1e-12)
    monkeypatch.setattr(answers._AskNew, "__call__", None)  # nothing is asked again
    assert fitted.write_proba(out, new) == out
    for other, those in ((None, "another fit"), (new[:90], "another fit"), (new[::-1], "other rows:")):
        with pytest.raises(ValueError, match=f"holds the answers of {those}"):
            fitted.write_proba(out, other)


def test_rows_that_were_corrected_are_answered_anew(tmp_path, known):
    """Far more rows than are looked at to tell fits apart, one of them changed."""
    new = np.tile(X + 0.05, (4, 1))
    out = known.write_proba(tmp_path / "out", new)
    changed = new.copy()
    changed[2] = 2 * X[TRUTH[2] != TRUTH][0]
    with pytest.raises(ValueError, match=r"holds the answers of other rows: choose another folder, or replace it"):
        known.write_proba(out, changed)
    known.write_proba(out, changed, force=True)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], known.predict_proba(changed)[:, 1], atol=1e-12)


def test_a_store_that_was_written_to_is_answered_anew(file, tmp_path, monkeypatch):
    """Rows that are not looked at to tell stores apart are swapped, which changes nothing that was learned."""
    monkeypatch.setattr(talls, "SPREAD_ROWS", N // 2)  # every second stands for all
    out = GraphClassifier(**QUICK).fit(tall(file), Y).write_proba(tmp_path / "out")
    changed = X.copy()
    changed[1::2] = X[1::2][::-1]
    np.save(file, changed)
    again = GraphClassifier(**QUICK).fit(tall(file), Y)
    with pytest.raises(ValueError, match=r"holds the answers of another fit, or of other rows: choose"):
        again.write_proba(out)
    again.write_proba(out, force=True)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], again.label_distributions_[:, 1], atol=1e-12)


@pytest.mark.parametrize("name", ["out", "out.zarr"])
@pytest.mark.parametrize(("bad", "there"), [(0, False), (7, False), (7, True), (77, False)])
def test_once_a_refused_row_is_mended_the_same_folder_is_filled(name, bad, there, tmp_path, known):
    new = X[:120] + 0.05
    new[bad, 1] = np.nan
    if there:
        (tmp_path / name).mkdir()
    with pytest.raises(RowError, match=f"NaN or infinite values in row {bad}\\."):
        known.write_proba(tmp_path / name, new)
    assert (tmp_path / name).exists() == (there or bad == 77)  # where a block was answered
    new[bad, 1] = 1.0
    out = known.write_proba(tmp_path / name, new)
    found = zarr.open_array(out)[:, 1] if name == "out.zarr" else np.array(parquet.read_table(out)["p_1"])
    np.testing.assert_allclose(found, known.predict_proba(new)[:, 1], atol=1e-12)


@pytest.mark.parametrize("kind", ["cosine", "knn"])
def test_new_rows_of_a_fit_in_a_store_cost_nothing_that_grows_with_the_fit(kind, file, tmp_path, monkeypatch):
    fitted = GraphClassifier(graph=kind, prior="matern", inference="ep").fit(tall(file), Y)
    new = np.vstack([X[:3], X[3:9] + 1e-9, X[:9] + 0.05])
    known = copy(fitted)
    assert known.label_distributions_.shape == (N, 2)
    monkeypatch.setattr(answers, "in_memory", None)
    np.testing.assert_allclose(fitted.predict_proba(new), known.predict_proba(new), atol=1e-12)
    out = fitted.write_proba(tmp_path / "out", new)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], known.predict_proba(new)[:, 1], atol=1e-12)
    sent = answers._new_question(known, new)[1].classifier
    assert kind == "knn" or sent._cached is None


def test_columns_of_new_rows_are_those_of_the_fit(tmp_path):
    table = pd.DataFrame(X, columns=list("abcd"))
    table.to_parquet(tmp_path / "x.parquet")
    (table + 0.05).to_parquet(tmp_path / "new.parquet")
    (table + 0.05)[list("dcba")].to_parquet(tmp_path / "turned.parquet")
    table.rename(columns={"d": "e"}).to_parquet(tmp_path / "others.parquet")
    for rows in (table, tmp_path / "x.parquet"):
        fitted = GraphClassifier(**QUICK).fit(tall(rows) if isinstance(rows, Path) else rows, Y)
        out = fitted.write_proba(tmp_path / f"{type(rows).__name__}", tmp_path / "new.parquet")
        known = fitted.predict_proba(table + 0.05 if rows is table else X + 0.05)
        np.testing.assert_allclose(parquet.read_table(out)["p_1"], known[:, 1], atol=1e-10)
        turned = fitted.write_proba(tmp_path / f"turned {type(rows).__name__}", tmp_path / "turned.parquet")
        np.testing.assert_allclose(parquet.read_table(turned)["p_1"], known[:, 1], atol=1e-10)
        np.testing.assert_allclose(fitted.predict_proba(tall(tmp_path / "turned.parquet")), known, atol=1e-10)
        with pytest.raises(ValueError, match=r"X lacks the column 'd', which the fit has: give the same columns"):
            fitted.write_proba(tmp_path / "others", tmp_path / "others.parquet")
    with pytest.raises(ValueError, match=r"feature names should match"):
        GraphClassifier(**QUICK).fit(table, Y).write_proba(tmp_path / "turned", table[list("dcba")])


def test_weights_of_all_rows_of_a_fit_are_those_rows(tmp_path, monkeypatch):
    """Also where they are looked at in parts, of which none has all rows."""
    monkeypatch.setattr(talls, "PART_ROWS", 30)
    W = graph.knn(X, n_neighbors=5).weights.toarray()
    fitted = GraphClassifier(graph="precomputed", prior="matern", inference="ep").fit(W, Y)
    out = fitted.write_proba(tmp_path / "out", W)
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], fitted.predict_proba(W)[:, 1], atol=1e-12)


def test_a_fit_with_a_function_among_its_settings_is_known_again():
    """A function's text has an address, which is another one in the next process."""
    of = {}
    for name, tau in (("one", 0.3), ("same", 0.3), ("other", 0.4)):
        settings = {"prior": partial(prior.matern, tau=tau, alpha=2.0), "inference": "ep"}
        fitted = GraphClassifier(**settings).fit(X, Y)
        fitted.graph = lambda X: X  # a new one each time
        of[name] = answers.key(fitted, fitted.labels_, None)
    assert of["one"] == of["same"] != of["other"]


def test_a_store_of_one_row_and_of_none(tmp_path, known):
    pd.DataFrame(X[:1] + 0.05).rename(columns=str).to_parquet(tmp_path / "one.parquet")
    out = known.write_proba(tmp_path / "out", tmp_path / "one.parquet")
    np.testing.assert_allclose(parquet.read_table(out)["p_1"], known.predict_proba(X[:1] + 0.05)[:, 1], atol=1e-12)
    with pytest.raises(ValueError, match=r"X has 1 row, and a graph needs two"):
        GraphClassifier(**QUICK).fit(tall(tmp_path / "one.parquet"), [0])
    pd.DataFrame(X[:0]).rename(columns=str).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet holds no rows of numbers"):
        tall(tmp_path / "none.parquet")
    empty = of_dask(tmp_path)[:0], zarr.create_array({}, shape=(0, 4), chunks=(5, 4), dtype=float)
    for none, name in zip(empty, ("Dask", "Zarr"), strict=True):
        with pytest.raises(ValueError, match=f"The {name} array has no rows"):
            tall(none)


def test_new_rows_that_cannot_be_answered_are_told(tmp_path, known):
    bad = X[:120] + 0.05
    bad[77, 1] = np.inf
    with pytest.raises(RowError, match=r"rows 50 to 99 has NaN or infinite values in row 77\."):
        known.write_proba(tmp_path / "out", bad)
    with pytest.raises(ValueError, match=r"X has 3 features, but GraphClassifier is expecting 4"):
        known.write_proba(tmp_path / "other", X[:, :3])
    with pytest.raises(TypeError, match=r"X is sparse, and blocks of rows are dense"):
        known.write_proba(tmp_path / "other", scipy.sparse.csr_array(X))
    with pytest.raises(ValueError, match=r"X has masked entries"):
        known.write_proba(tmp_path / "other", np.ma.masked_greater(X, 2))
    far = np.tile(X + 0.05, (8, 1))
    far[3000] = 0.0
    with pytest.raises(RowError, match=r"Row 3000 of X is all zeros"):
        known.write_proba(tmp_path / "zeros", far)
    assert not (tmp_path / "other").exists()


def test_a_block_with_missing_numbers_is_named(tmp_path):
    bad = X.copy()
    bad[213, 2] = np.nan
    array = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(50, 4), dtype=float)
    array[:] = bad
    with pytest.raises(RowError, match=r"rows 200 to 249 has NaN or infinite values in row 213\."):
        GraphClassifier(graph="cosine").fit(array, Y)
    bad[213] = 0.0
    array[:] = bad
    with pytest.raises(RowError, match=r"Row 213 of X is all zeros and has no direction"):
        GraphClassifier(graph="cosine").fit(array, Y)


def test_what_will_not_fit_is_refused_before_work(file, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"graph must be one of cosine, nystrom, knn for features in a store"):
        GraphClassifier(graph="self_tuning").fit(tall(file), Y)
    fitted = GraphClassifier(**QUICK).fit(tall(file), Y)
    monkeypatch.setattr("graphuq.memory.shutil.disk_usage", lambda path: type("Usage", (), {"free": 100}))
    with pytest.raises(OSError, match=r"Writing all rows takes 0\.0 MB, but 0\.0 MB are free"):
        fitted.write_proba(tmp_path / "out")
    monkeypatch.setattr("graphuq.memory.room", lambda: 5000.0)
    with pytest.raises(MemoryError, match=r"An answer for each of 400 rows .* Use write_proba"):
        _ = fitted.label_distributions_
    with pytest.raises(MemoryError, match=r"smaller chunks"):
        GraphClassifier(graph="cosine").fit(tall(file), Y)
    with pytest.raises(
        MemoryError, match=r"nearest neighbors of 400 rows, with its eigenvectors, takes .* nystrom"
    ):
        GraphClassifier(graph="knn").fit(tall(file), Y)


def test_modes_that_do_not_fit_are_done_without(monkeypatch):
    many = np.random.default_rng(0).standard_normal((2500, 3))
    y = np.where(np.arange(2500) % 50 == 0, (many[:, 0] * many[:, 1] > 0).astype(int), -1)
    monkeypatch.setattr("graphuq.estimator.settings.room", lambda: 32.0 * 2500 * 90)
    with pytest.warns(UserWarning, match=r"memory for 90 eigenvectors"):
        found = GraphClassifier().fit(many, y)
    assert found.spectrum_.n_modes == 90


def test_a_mapped_file_that_would_fill_the_memory_stays_on_disk(file, monkeypatch):
    mapped = np.load(file, mmap_mode="r")
    known = GraphClassifier(**QUICK).fit(mapped, Y)
    assert known._seen.store is None
    monkeypatch.setattr("graphuq.estimator.seen.room", lambda: 20_000.0)
    found = GraphClassifier(**QUICK).fit(mapped, Y)
    assert found._seen.store is not None
    np.testing.assert_allclose(found.label_distributions_, known.label_distributions_, atol=1e-10)


@dataclass(frozen=True)
class KillsOnce:
    """Rows as they are, but the first process of a cluster that sees row 0 dies of it."""

    flag: Path
    parent: int

    def __call__(self, rows):
        if os.getpid() != self.parent and (rows == X[0]).all(axis=1).any() and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


@dataclass(frozen=True)
class DiesOnce:
    """Work on a part, but the first process of a cluster that does it dies."""

    work: Any
    flag: Path
    parent: int

    def __call__(self, part):
        if os.getpid() != self.parent and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work(part)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_processes_gives_the_same_numbers_though_a_worker_is_killed(
    file, tmp_path, known, monkeypatch
):
    coarse = np.round(2 * X)  # many distances are equal
    np.save(tmp_path / "coarse.npy", coarse)
    search = graph.knn(n_neighbors=5, method="approximate")
    with cluster(workers=2):
        with monkeypatch.context() as patched:
            patched.setattr(passes, "in_threads", None)  # nor is anything searched here
            found = search(tall(tmp_path / "coarse.npy"))
        assert abs(found.weights - search(coarse).weights).max() == 0
        with monkeypatch.context() as patched:
            patched.setattr(neighbors, "_nearer", DiesOnce(neighbors._nearer, tmp_path / "died", os.getpid()))
            found = search(tall(file))
        assert (tmp_path / "died").exists()
        assert abs(found.weights - search(X).weights).max() == 0
        assert passes.client() is not None
        of_chunks = GraphClassifier(graph="cosine").fit(of_dask(tmp_path), Y)
        np.testing.assert_allclose(of_chunks.label_distributions_, known.label_distributions_, atol=1e-10)
        deadly = tall(file).mapped(KillsOnce(tmp_path / "killed", os.getpid()), 4)
        found = GraphClassifier(graph="cosine").fit(deadly, Y)
        assert (tmp_path / "killed").exists()
        np.testing.assert_allclose(found.label_distributions_, known.label_distributions_, atol=1e-10)
        models.write(tmp_path / "model", found)
        for name, each in (("new", found), ("later", models.read(tmp_path / "model")[0])):
            out = each.write_proba(tmp_path / name, tall(file).mapped(np.sqrt, 4))
            np.testing.assert_allclose(
                parquet.read_table(out)["p_1"], known.predict_proba(np.sqrt(X))[:, 1], atol=1e-10
            )
    assert passes.client() is None


@dataclass(frozen=True)
class OnlyFirst:
    """Rows as they are, but a process of a cluster comes to an end with no block but that of row 0."""

    parent: int

    def __call__(self, rows):
        while os.getpid() != self.parent and not (rows == X[0]).all(axis=1).any():
            time.sleep(0.1)
        return rows


def end(scheduler, out):
    """Kill the scheduler as soon as a block is finished."""
    while scheduler.poll() is None and not list(out.glob("*.parquet")):
        time.sleep(0.02)
    scheduler.kill()


@contextmanager
def scheduling(folder):
    """A scheduler in a process of its own, with a worker: the process, and its address."""
    told = folder / "scheduler.json"
    common = ["--scheduler-file", str(told), "--no-dashboard"]
    command = [sys.executable, "-m"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*command, "distributed.cli.dask_scheduler", "--port", "0", *common], **quiet)
    worker = subprocess.Popen(
        [
            *command,
            "distributed.cli.dask_worker",
            *common,
            "--no-nanny",
            "--nthreads",
            "99",  # one for each block that waits, and more
            "--death-timeout",
            "9",
        ],
        **quiet,
    )
    try:
        while not (told.exists() and told.read_text().endswith("}")):
            time.sleep(0.05)
        yield scheduler, json.loads(told.read_text())["address"]
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")
def test_a_dead_scheduler_is_told_and_what_was_finished_stays(file, tmp_path, known):
    fitted = GraphClassifier(graph="cosine").fit(tall(file), Y)
    columns = fitted._seen.linear.columns(tall(file).mapped(OnlyFirst(os.getpid()), 4))
    fitted._seen = replace(fitted._seen, columns=columns)
    with scheduling(tmp_path) as (scheduler, address):
        Thread(target=end, args=(scheduler, tmp_path / "out"), daemon=True).start()
        with cluster(scheduler=address), pytest.raises(SchedulerLost, match=r"does not answer any more. What was"):
            fitted.write_proba(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    fitted.write_proba(tmp_path / "out")
    np.testing.assert_allclose(
        parquet.read_table(tmp_path / "out")["p_1"], known.label_distributions_[:, 1], atol=1e-10
    )


@pytest.mark.filterwarnings("ignore")
def test_a_search_goes_on_when_its_scheduler_has_died(file, tmp_path, monkeypatch):
    plain, kept = sums.write, []
    search = graph.knn(n_neighbors=5, method="approximate")
    undisturbed = search(X)
    with scheduling(tmp_path) as (scheduler, address):

        def write(path, n_done, made):
            plain(path, n_done, made)
            kept.append(n_done)
            if n_done == 5:
                scheduler.kill()
                scheduler.wait()

        with monkeypatch.context() as patched:
            patched.setattr(sums, "KEEP_AFTER", -1.0)
            patched.setattr(sums, "write", write)
            with (
                pytest.raises(SchedulerLost),
                kept_sums(tmp_path / "sums", "x"),
                cluster(scheduler=address),
            ):
                search(tall(file))
    assert 5 <= kept[-1] < 40
    with kept_sums(tmp_path / "sums", "x"):
        monkeypatch.setattr(neighbors, "kmeans_centers", lambda *_: pytest.fail("cells were made again"))
        take = Mock(side_effect=neighbors._Nearest.take)
        monkeypatch.setattr(neighbors._Nearest, "take", lambda *given: take(*given))
        put = Mock(side_effect=neighbors._Nearest.put)
        monkeypatch.setattr(neighbors._Nearest, "put", lambda *given: put(*given))
        found = search(tall(file))
    assert put.call_count + take.call_count == 40 - kept[-1]
    assert abs(found.weights - undisturbed.weights).max() == 0


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_refuses():
    with (
        pytest.raises(SchedulerLost, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        cluster(scheduler="tcp://127.0.0.1:9", patience=0.5),
    ):
        pytest.fail("there is none")


@pytest.mark.parametrize("name", ["p", "p.zarr"])
def test_answers_that_decayed_are_refused_or_written_anew(file, tmp_path, name):
    """A flip in the ledger leaves out no block; one in a part of the answers is known by its checksum."""
    classifier = GraphClassifier(**QUICK).fit(tall(file), Y)
    folder = classifier.write_proba(tmp_path / name)

    def read():
        source = tall(folder) if name == "p.zarr" else parquet.read_table(folder, page_checksum_verification=True)
        return source.rows(slice(0, N)) if name == "p.zarr" else np.array(source["p_1"])

    def resumed():
        classifier.write_proba(folder)
        return read()

    whole, refused = read(), 0
    some = folder / ("c/3/0" if name == "p.zarr" else "part-000003.parquet")
    for path, again, n in ((folder / answers.LEDGER, resumed, 50), (some, read, 200)):
        content = path.read_bytes()
        for each in decayed(content, n_flips=n, n_cuts=n // 4):
            path.write_bytes(each)
            try:
                assert np.array_equal(again(), whole)
            except (ValueError, OSError, NotImplementedError):  # of Arrow, whose headings have no checksum
                refused += 1
        path.write_bytes(content)
    assert refused > 100
    for path in (some, folder / "zarr.json") if name == "p.zarr" else (some,):
        for each in decayed(path.read_bytes(), n_flips=5, n_cuts=3):
            path.write_bytes(each)
            np.testing.assert_array_equal(resumed(), whole)
        path.unlink()
        np.testing.assert_array_equal(resumed(), whole)


def test_a_chunk_of_answers_is_a_block_whatever_the_groups_of_rows(tmp_path, known):
    """Row groups of 30 and blocks of about 50 make blocks of 60 and 30 rows; chunks have one length."""
    pd.DataFrame(X + 0.05, columns=list("abcd")).to_parquet(tmp_path / "x.parquet", row_group_size=30)
    store = tall(tmp_path / "x.parquet")
    assert len(set(np.diff(store.bounds)[:-1])) > 1
    out = known.write_proba(tmp_path / "out.zarr", store)
    (out / "c/2/0").unlink()
    known.write_proba(out, store)
    np.testing.assert_allclose(zarr.open_array(out)[:], known.predict_proba(X + 0.05), atol=1e-12)
