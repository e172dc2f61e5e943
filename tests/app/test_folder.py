"""A model on disk is the model that was fitted: every kind of graph, prior and posterior."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from graphuq import GraphClassifier, archive, prior
from graphuq import tall as talls
from graphuq.app import folder
from graphuq.app.cli import app
from graphuq.app.fitting import predict_table
from graphuq.app.report.content import TableRows
from graphuq.estimator import answers
from graphuq.posterior import Draws
from graphuq.tall import tall
from tests.decay import decayed

FLOWERS = load_iris()
ROWS = np.arange(0, 150, 2)
NEW = FLOWERS.data[1::2] + 0.01
QUICK = {"gamma": 0.5, "n_steps": 200}

KINDS = {
    "learned": ({}, 3),
    "learned, two classes": ({"n_neighbors": 5}, 2),
    "low rank": ({"graph": "cosine"}, 3),
    "landmarks": ({"graph": "nystrom", "width": 1.0}, 3),
    "expectation propagation": ({"prior": "matern", "inference": "ep", "gamma": 0.2}, 3),
    "draws": ({"prior": "matern", **QUICK}, 2),
    "a tail": ({"prior": "approximate", "n_modes": 20, "graph": "self_tuning", **QUICK}, 2),
    "principal components": ({"prior": "full", "graph": "gaussian", "width": 1.0, "n_components": 2, **QUICK}, 2),
}


def fitted(settings, n_classes):
    y = FLOWERS.target[ROWS].astype(str).astype(object)
    y[np.arange(len(y)) % 5 > 0] = None
    kept = FLOWERS.target[ROWS] < n_classes
    return GraphClassifier(**settings).fit(FLOWERS.data[ROWS][kept], y[kept])


def saved(classifier, path):
    rows = TableRows(names=[f"flower {k}" for k in range(classifier.graph_.n_nodes)], columns=["width"])
    folder.write(path, classifier, rows, {"asked": "nothing"})
    after, named, record = folder.read(path)
    assert (named.names, named.columns, record) == (rows.names, rows.columns, {"asked": "nothing"})
    assert repr(named) == "TableRows(columns=['width'])"  # not all that there is in thousands of rows
    return after


@pytest.mark.filterwarnings("error")
def test_names_of_columns_are_kept_and_new_rows_have_them_in_any_order(tmp_path):
    table = pd.DataFrame(FLOWERS.data[ROWS], columns=list("abcd"))
    y = np.where(np.arange(len(ROWS)) % 5 > 0, -1, FLOWERS.target[ROWS])
    before = GraphClassifier(prior="matern", inference="ep", gamma=0.5).fit(table, y)
    folder.write(tmp_path / "model", before)
    after = folder.read(tmp_path / "model").classifier
    new = pd.DataFrame(NEW, columns=list("abcd"))
    probability = before.predict_proba(new)
    np.testing.assert_allclose(after.predict_proba(new), probability, atol=1e-12)
    with pytest.raises(ValueError, match="same order"):
        after.predict_proba(new[list("dcba")])
    new[list("dcba")].to_csv(tmp_path / "turned.csv", index=False)
    np.savez(tmp_path / "bare.npz", x=NEW)
    for name in ("turned.csv", "bare.npz"):
        found, notes, _ = predict_table(folder.read(tmp_path / "model"), tmp_path / name)
        np.testing.assert_allclose(found["probability of 0"], probability[:, 0], atol=1e-6)
        assert not notes
    new[list("abc")].to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(ValueError, match="no column 'd'"):
        predict_table(folder.read(tmp_path / "model"), tmp_path / "few.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_on_two_lines_are_those_of_new_rows_too(tmp_path, ending):
    """pandas keeps the line breaks of an Excel file."""
    names = ["petal\nlength", "b", "c", "d"]
    y = np.where(np.arange(len(ROWS)) % 5 > 0, -1, FLOWERS.target[ROWS])
    before = GraphClassifier(prior="matern", inference="ep", gamma=0.5)
    folder.write(tmp_path / "model", before.fit(pd.DataFrame(FLOWERS.data[ROWS], columns=names), y))
    new = pd.DataFrame(NEW, columns=names)
    path = tmp_path / f"new.{ending}"
    (new.to_csv if ending == "csv" else new.to_parquet)(path, index=False)
    found, _, _ = predict_table(folder.read(tmp_path / "model"), path)
    np.testing.assert_allclose(found["probability of 0"], before.predict_proba(new)[:, 0], atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_a_loaded_model_answers_as_the_fitted_one(tmp_path, name):
    settings, n_classes = KINDS[name]
    before = fitted(settings, n_classes)
    after = saved(before, tmp_path / "model")
    assert after.get_params() == before.get_params()
    assert (after.hyperparameters_, after.hyperparameter_spread_) == (
        before.hyperparameters_,
        before.hyperparameter_spread_,
    )
    assert np.array_equal(after.transduction_, before.transduction_)
    assert np.array_equal(after.label_distributions_, before.label_distributions_)
    assert np.array_equal(after.label_errors_, before.label_errors_)
    assert str(after.posterior_.diagnostics()) == str(before.posterior_.diagnostics())
    np.testing.assert_allclose(after.posterior_.probability(), before.posterior_.probability(), rtol=1e-9)
    np.testing.assert_allclose(after.predict_proba(NEW), before.predict_proba(NEW), rtol=1e-9)
    np.testing.assert_allclose(
        after.suspicious_labels().probability, before.suspicious_labels().probability, rtol=1e-6
    )
    again = [each.partial_fit_labels([1], ["1"]).predict_proba(NEW) for each in (before, after)]
    np.testing.assert_allclose(again[1], again[0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["M8[D]", "m8[D]", "f2", "u1", "bool", "U9", np.longdouble])
def test_classes_are_of_their_kind_in_a_loaded_model(tmp_path, kind):
    """Text of times, such as "10 days", is in another order than they are."""
    X, y = FLOWERS.data[ROWS], np.array([0, 2, 10])[FLOWERS.target[ROWS]].astype(kind)
    before = GraphClassifier(prior="matern", inference="ep", gamma=0.5).fit(X, y)
    folder.write(tmp_path / "model", before)
    after = folder.read(tmp_path / "model").classifier
    assert (after.classes_.dtype, after.classes_.tolist()) == (before.classes_.dtype, before.classes_.tolist())
    assert after.score(X, y) == before.score(X, y) > 0.8


def test_classes_that_floats_would_round_are_the_same_in_a_loaded_model(tmp_path):
    X, y = FLOWERS.data[ROWS], np.array([1, 2**63 + 5, 2**63 + 7], dtype=np.uint64)[FLOWERS.target[ROWS]]
    before = GraphClassifier(prior="matern", inference="ep", gamma=0.5).fit(X, y)
    folder.write(tmp_path / "model", before)
    after = folder.read(tmp_path / "model").classifier
    assert after.classes_.tolist() == [1, 2**63 + 5, 2**63 + 7]
    assert np.array_equal(after.predict(X), before.predict(X))


@pytest.mark.filterwarnings("ignore")
def test_a_loaded_model_asks_and_learns_again(tmp_path):
    before = fitted({}, 2)
    after = saved(before, tmp_path / "model")
    for each in (before, after):
        each.partial_fit_labels([1], ["1"]).relearn()
    np.testing.assert_allclose(after.label_distributions_, before.label_distributions_, rtol=1e-6)
    assert np.array_equal(after.next_queries(3), before.next_queries(3))


@pytest.fixture
def one_drawn(monkeypatch):
    """Of a mixture the heaviest component alone is drawn, since each has to compile."""
    monkeypatch.setattr("graphuq.estimator.beliefs.DRAWN_WEIGHT", 1e-3)


@pytest.mark.filterwarnings("ignore")
def test_lighter_components_of_drawn_ones_are_kept(tmp_path, one_drawn):
    """A label may give those their weight back that were too light to be drawn: the folder has them all."""
    before = fitted({"inference": "sample", "n_steps": 30, "n_chains": 2}, 3)
    whole = before.posterior_.drawn_from
    assert len(whole.components) > len(before.posterior_.components)
    after = saved(before, tmp_path / "model")
    found = after.posterior_.drawn_from
    assert all(isinstance(each, Draws) for each in after.posterior_.components)
    assert np.array_equal(found.weights, whole.weights)
    for kept, each in zip(found.components, whole.components, strict=True):
        assert kept.fit.log_evidence == pytest.approx(each.fit.log_evidence, abs=1e-8)
        np.testing.assert_allclose(kept.probability(), each.probability(), atol=1e-8)
    for each in (before, after):
        each.set_params(inference="ep").partial_fit_labels([1], ["1"])
        assert len(each.posterior_.components) == len(whole.components)
    np.testing.assert_allclose(after.posterior_.weights, before.posterior_.weights, rtol=1e-6)
    np.testing.assert_allclose(after.label_distributions_, before.label_distributions_, rtol=1e-6)


def test_a_table_fitted_by_draws_keeps_its_lighter_components(tmp_path, one_drawn):
    labels = np.where(np.arange(len(ROWS)) % 5 > 0, -1, FLOWERS.target[ROWS] > 0)
    np.savez(tmp_path / "flowers.npz", petals=FLOWERS.data[ROWS], kind=labels)
    out = tmp_path / "model"
    asked = ["--label", "kind", "--out", out, "--inference", "sample", "--draws", 30, "--quiet"]
    done = CliRunner().invoke(app, ["fit", str(tmp_path / "flowers.npz"), *map(str, asked)])
    assert done.exit_code == 0, done.output
    posterior = folder.read(out)[0].posterior_
    assert isinstance(posterior.components[0], Draws)
    assert len(posterior.drawn_from.components) > len(posterior.components)


def test_eigenvectors_are_stored_once(tmp_path):
    classifier = fitted({}, 3)
    saved(classifier, tmp_path / "model")
    _, arrays = archive.read(tmp_path / "model" / folder.MODEL, folder.FORMAT, "a model")
    n_nodes = classifier.graph_.n_nodes
    wide = [
        name for name, array in arrays.items() if array.ndim == 2 and array.shape[0] == n_nodes <= array.shape[1]
    ]
    assert wide == ["spectrum vectors"]
    assert arrays["rows linear"].shape in (
        (n_nodes, 64),
        (n_nodes, 0),
    )  # 4 features, and 60 columns in which they bend


def test_settings_that_no_file_keeps_are_refused():
    with pytest.raises(ValueError, match=r"cannot keep the setting prior = .*: give a name or a number"):
        folder.refuse_objects(GraphClassifier(prior=prior.matern(tau=0.1, alpha=2)))
    with pytest.raises(ValueError, match="cannot keep the setting random_state"):
        folder.refuse_objects(GraphClassifier(random_state=np.random.RandomState(0)))
    folder.refuse_objects(GraphClassifier())


def test_a_model_that_was_changed_is_refused(tmp_path):
    saved(fitted({"prior": "matern", **QUICK}, 2), tmp_path / "out")
    facts, arrays = archive.read(tmp_path / "out" / folder.MODEL, folder.FORMAT, "a model")
    arrays["rows probability"][0, 0] += 1e-9
    np.savez(tmp_path / "out" / folder.MODEL, facts=np.load(tmp_path / "out" / folder.MODEL)["facts"], **arrays)
    with pytest.raises(ValueError, match=r"model\.npz was changed or damaged"):
        folder.read(tmp_path / "out")
    archive.write(tmp_path / "out" / folder.MODEL, folder.FORMAT, {**facts, "version": "0.0.1"}, arrays)
    with pytest.raises(ValueError, match=r"written by graphuq 0\.0\.1, and this is"):
        folder.read(tmp_path / "out")
    (tmp_path / "out" / folder.MODEL).unlink()
    with pytest.raises(ValueError, match=r"holds no model: it has no model\.npz"):
        folder.read(tmp_path / "out")


FEW_DRAWS = {"inference": "sample", "n_steps": 20, "n_chains": 2}
STORES = {
    "cosine": {"graph": "cosine"},
    "nystrom": {"graph": "nystrom", "width": 1.0},
    "knn": {},
    "knn of principal components": {"n_components": 2},
    "expectation propagation": {"graph": "cosine", "prior": "matern", "inference": "ep"},
    "draws": {"graph": "cosine", "prior": "matern", **FEW_DRAWS},
    "a tail": {"graph": "nystrom", "width": 1.0, "prior": "approximate", "inference": "ep"},
    "every node is seen": {"graph": "cosine", "prior": "matern", "model": "ginzburg_landau", **FEW_DRAWS},
}


@pytest.fixture
def few_kept(monkeypatch):
    monkeypatch.setattr(talls, "SPREAD_ROWS", 20)


def of_store(settings, path):
    np.save(path / "x.npy", FLOWERS.data[ROWS])
    truth = FLOWERS.target[ROWS] // (2 if "n_steps" in settings else 1)  # draws of two classes are quick
    return GraphClassifier(**settings).fit(tall(path / "x.npy"), np.where(np.arange(75) % 5 == 0, truth, -1))


@pytest.mark.parametrize("name", STORES)
@pytest.mark.filterwarnings("ignore")
def test_the_model_of_a_store_needs_no_store(tmp_path, name, few_kept):
    before = of_store(STORES[name], tmp_path)
    known, labeled = before.predict_proba(NEW), before.posterior_.probability(before.labels_.nodes)
    everywhere, of = before.label_distributions_, answers.key(before, before.labels_, before._seen.store)
    folder.write(tmp_path, before)
    whole = folder.read(tmp_path, store=tmp_path / "x.npy")[0]
    np.testing.assert_allclose(whole.label_distributions_, everywhere, rtol=1e-9)
    (tmp_path / "x.npy").unlink()
    after = folder.read(tmp_path)[0]
    np.testing.assert_array_equal(after.classes_, before.classes_)
    np.testing.assert_allclose(after.predict_proba(NEW), known, rtol=1e-9)
    np.testing.assert_allclose(after.posterior_.probability(after.labels_.nodes), labeled, rtol=1e-9)
    assert answers.key(after, after.labels_, after._seen.store) == of
    if len(np.load(tmp_path / "model.npz")["rows nodes"]) == 75:
        np.testing.assert_allclose(after.label_distributions_, everywhere, rtol=1e-9)
    else:
        assert len(np.load(tmp_path / "model.npz")["rows nodes"]) == 35  # every third, and every fifth
        with pytest.raises(ValueError, match=r"Row 1 is not here: of 75 rows 35 are kept, .* or fit again"):
            _ = after.label_distributions_
    if name in ("cosine", "knn"):
        again = [each.partial_fit_labels([5], [1]).relearn().predict_proba(NEW) for each in (whole, after)]
        np.testing.assert_allclose(again[1], again[0], rtol=1e-6)


def test_what_is_large_in_the_model_of_neighbors_is_not_read_into_memory(tmp_path):
    folder.write(tmp_path, of_store({}, tmp_path))
    after = folder.read(tmp_path)[0]
    assert isinstance(after.spectrum_.vectors, np.memmap)
    assert isinstance(after._seen.store.source.array, np.memmap)


@pytest.mark.parametrize("name", ["nystrom", "knn"])
@pytest.mark.filterwarnings("ignore")
def test_the_model_of_a_store_that_decayed_is_refused(tmp_path, name):
    folder.write(tmp_path, of_store(STORES[name], tmp_path))
    content = (tmp_path / folder.MODEL).read_bytes()
    for each in decayed(content, n_flips=40, n_cuts=10):
        (tmp_path / folder.MODEL).write_bytes(each)
        with pytest.raises(ValueError, match=r"model\.npz (is not a model|was changed or damaged)"):
            folder.read(tmp_path)


def test_a_pipeline_is_refused_and_its_last_step_named(tmp_path):
    with pytest.raises(TypeError, match=r"such as the last step of a pipeline, got a Pipeline"):
        folder.write(tmp_path / "model", make_pipeline(GraphClassifier()))


@pytest.mark.parametrize("name", ["predictions.csv", "report.html"])
def test_answers_and_reports_of_another_model_do_not_stay_beside_a_new_one(tmp_path, name):
    classifier = fitted({"prior": "matern", "inference": "ep", "gamma": 0.5}, 2)
    saved(classifier, tmp_path)
    saved(classifier, tmp_path)  # a model alone is replaced
    before = (tmp_path / "model.npz").read_bytes()
    (tmp_path / name).write_text("of the model there")
    with pytest.raises(ValueError, match=rf"holds {name} of the model there, not of this one: choose another"):
        folder.write(tmp_path, classifier)
    assert (tmp_path / "model.npz").read_bytes() == before
