"""Class shares that are known other than from the labels, through every face of the classifier."""

import copy
import csv

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from graphuq import GraphClassifier
from graphuq.app import folder
from graphuq.app.cli import app
from graphuq.calibration import weighted_classes
from graphuq.posterior import Mixture

SHARES = {"setosa": 0.6, "versicolor": 0.3, "virginica": 0.1}
X = load_iris().data
TRUTH = load_iris().target_names[load_iris().target]
Y = np.where(np.arange(150) % 50 < 4, TRUTH, "")
NEW = X[::7] + 0.03


@pytest.fixture(scope="module")
def bare():
    return GraphClassifier().fit(X, Y)


@pytest.fixture(scope="module")
def shared():
    """Never changed."""
    return GraphClassifier(class_shares=SHARES).fit(X, Y)


def shares_of(classifier):
    return classifier.label_distributions_.mean(axis=0)


def test_rows_have_the_shares_and_new_rows_the_same_odds(bare, shared):
    weights = shared.posterior_.class_weights
    np.testing.assert_allclose(shares_of(shared), list(SHARES.values()), atol=1e-5)
    assert np.abs(shares_of(bare) - list(SHARES.values())).max() > 0.1
    where = bare.locate(NEW)[2]
    expected = weighted_classes(bare.posterior_.probability(where), weights)
    np.testing.assert_allclose(shared.posterior_.probability(where), expected, atol=1e-5)
    # near a row of the fit it is nearly that row's answer, and equal rows have one answer
    np.testing.assert_allclose(shared.predict_proba(NEW), expected, atol=0.03)
    np.testing.assert_allclose(shared.posterior_.probability(), shared.label_distributions_, atol=1e-4)


def test_labels_are_left_out_as_frequent_as_they_are(bare, shared):
    np.testing.assert_allclose(shared.posterior_.left_out(), bare.posterior_.left_out())
    assert str(shared.self_check()) == str(bare.self_check())


def test_shares_that_rows_have_already_change_nothing(bare):
    same = dict(zip(bare.classes_, shares_of(bare), strict=True))
    found = GraphClassifier(class_shares=same).fit(X, Y)
    np.testing.assert_allclose(found.label_distributions_, bare.label_distributions_, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "settings",
    [
        {"prior": "matern", "inference": "ep"},
        {"prior": "matern", "inference": "sample", "n_steps": 60, "n_chains": 2},
        {"prior": "matern", "model": "ginzburg_landau", "inference": "sample", "n_steps": 40, "n_chains": 2},
    ],
    ids=["ep", "draws", "ginzburg_landau"],
)
def test_shares_outlast_new_labels_and_draws(settings):
    classifier = GraphClassifier(class_shares="equal", **settings).fit(X, Y)
    assert isinstance(classifier.posterior_, Mixture)
    for step in (lambda: classifier.partial_fit_labels([70], ["versicolor"]), classifier.draw):
        np.testing.assert_allclose(shares_of(classifier), 1 / 3, atol=1e-5)
        step()
    np.testing.assert_allclose(shares_of(classifier), 1 / 3, atol=1e-5)


def test_two_classes_by_number():
    y = np.where(Y == "", -1, np.where(Y == "setosa", 0, 1))
    shares = {np.int64(0): 0.2, 1: 0.8}
    np.testing.assert_allclose(shares_of(GraphClassifier(class_shares=shares).fit(X, y)), [0.2, 0.8], atol=1e-5)


def test_a_folder_keeps_them(shared, tmp_path):
    folder.write(tmp_path, shared)
    again = folder.read(tmp_path).classifier
    assert again.class_shares == SHARES
    np.testing.assert_allclose(again.predict_proba(NEW), shared.predict_proba(NEW), atol=1e-12)
    again.partial_fit_labels([70], ["versicolor"])
    np.testing.assert_allclose(shares_of(again), list(SHARES.values()), atol=1e-5)


def test_gains_are_those_of_the_adjusted_probabilities(shared):
    errors = np.where(Y == "", 1 - shared.label_distributions_.max(axis=1), 0)  # labels are taken as known
    assert shared.expected_gain(1).errors[0] == pytest.approx(errors.mean(), abs=1e-3)
    row = shared.next_queries(1)[0]
    after = copy.copy(shared).partial_fit_labels([row], [TRUTH[row]])
    assert after.expected_gain(1).errors[0] < shared.expected_gain(1).errors[0]


REFUSED = [
    (
        "even",
        ValueError,
        "class_shares must be None, 'equal', or the share of each class by its name, got 'even'.",
    ),
    (0.5, TypeError, "class_shares must be None, 'equal', or the share of each class by its name, got 0.5."),
    ({"setosa": 1.0}, ValueError, "class_shares lacks 'versicolor': give the share of each of setosa, versicolor"),
    (
        SHARES | {"rosa": 0.1},
        ValueError,
        "class_shares names 'rosa', and no label is of that class: give the share",
    ),
    (dict.fromkeys(SHARES, 0.5), ValueError, "class_shares must add up to 1, got the sum 1.5."),
    (SHARES | {"setosa": 0}, ValueError, r"class_shares\['setosa'\] must be a finite number above 0, got 0."),
    (
        SHARES | {"setosa": "most"},
        TypeError,
        r"class_shares\['setosa'\] must be a finite number above 0, got 'most'.",
    ),
]


@pytest.mark.parametrize(("shares", "kind", "told"), REFUSED)
def test_shares_that_cannot_be(shares, kind, told, monkeypatch):
    monkeypatch.setattr("graphuq.estimator.seen.Seen.of", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(kind, match=told):
        GraphClassifier(class_shares=shares).fit(X, Y)


def test_the_shell_takes_them(tmp_path):
    table = tmp_path / "iris.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["species", "a", "b", "c", "d"], *([y, *x] for x, y in zip(X, Y, strict=True))]
        )

    def fit(*more):
        return CliRunner().invoke(
            app, ["fit", str(table), "--label", "species", "--out", str(tmp_path / "out"), *more]
        )

    options = [word for name, share in SHARES.items() for word in ("--class-share", f"{name}={share}")]
    done = fit(*options)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out/predictions.csv").open() as file:
        found = list(csv.DictReader(file))
    means = [np.mean([float(row[f"probability of {name}"]) for row in found]) for name in SHARES]
    np.testing.assert_allclose(means, list(SHARES.values()), atol=1e-4)
    assert (
        "--class-share much: write it as NAME=SHARE, such as yes=0.05, or equal."
        in fit("--class-share", "much").output
    )
    assert "--class-share lacks 'versicolor'" in fit("--class-share", "setosa=1", "--force").output.replace(
        "\n", " "
    )


def test_single_labels_do_not_make_classes_equally_frequent():
    """Where classes lie apart, the rows that a label reaches are its class, however many they are."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [300, 20, 20])
    clouds = rng.normal(size=(len(y), 2)) + 8 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    first = np.full(len(y), -1)
    first[[0, 300, 320]] = 0, 1, 2
    assert GraphClassifier().fit(clouds, first).score(clouds, y) > 0.95


def test_shares_that_are_not_known_any_more_are_left_out(bare, shared):
    changed = copy.copy(shared).set_params(class_shares=None).partial_fit_labels([10], ["setosa"])
    expected = copy.copy(bare).partial_fit_labels([10], ["setosa"])
    np.testing.assert_allclose(changed.label_distributions_, expected.label_distributions_, atol=1e-6)
