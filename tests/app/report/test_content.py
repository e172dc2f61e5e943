from copy import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from graphuq import GraphClassifier, calibration, graph, laplacian, spectrum
from graphuq.app.report import plots
from graphuq.app.report.content import MAX_POINTS, TableRows, _nearest, _shown, collect, n_columns_shown
from graphuq.app.report.words import Suspicious, sentences, tiles
from graphuq.app.wording import share
from graphuq.estimator.settings import without_effect
from graphuq.posterior import Mixture
from graphuq.posterior.left_out import SelfCheck
from tests.app.report.fits import blobs, content_of, few, fit, moons, numbers, of_kind


def test_what_it_says(any_kind):
    """Every number is that of the probabilities, whatever posterior they come from."""
    content, p = content_of(any_kind), any_kind.label_distributions_
    n_rows, n_classes = p.shape
    assert content.sentences[0].startswith(f"Of {n_rows} rows, {5 * n_classes} had a class: 5 had “")
    unlabeled = np.setdiff1d(np.arange(n_rows), any_kind.labels_.nodes)
    surest = unlabeled[np.argsort(-p[unlabeled].max(axis=1))]
    assert content.most_certain[0] == surest[0]
    assert content.least_certain.tolist() == any_kind.most_uncertain(20).tolist()
    answers = any_kind.transduction_[unlabeled]
    assert content.found == [int(np.sum(answers == name)) for name in any_kind.classes_]
    assert [sum(counts) for counts in content.plots["confidence"]["counts"]] == content.found
    assert content.plots["confidence"]["edges"][0] == pytest.approx(1 / n_classes, abs=1e-4)
    assert ("seconds", "1.5") in content.settings
    temperature = getattr(any_kind.posterior_, "temperature", None)
    assert dict(content.settings).get("temperature") == (None if temperature is None else f"{temperature:.3g}")


def test_what_it_says_of_a_row(any_kind):
    content, p = content_of(any_kind), any_kind.label_distributions_
    for entry in content.nodes[::7]:
        mine = np.sort(p[entry["node"]])[::-1]
        assert [each for _, each in entry["p"]] == pytest.approx(mine, abs=1e-4)
        assert entry["confidence"] == pytest.approx(mine[0], abs=1e-4)
        assert content.classes[entry["class"]] == any_kind.transduction_[entry["node"]]
        assert entry["p"][0][0] == entry["class"]
    given = {entry["node"]: entry["label"] for entry in content.nodes if entry["label"] >= 0}
    assert given == dict(zip(any_kind.labels_.nodes.tolist(), any_kind.labels_.y.tolist(), strict=True))


def test_errors_are_those_of_draws(any_kind):
    content, posterior = content_of(any_kind), any_kind.posterior_
    first = posterior.components[0] if isinstance(posterior, Mixture) else posterior
    if not hasattr(first, "z"):
        assert {entry["error"] for entry in content.nodes} == {None}
        return
    error = posterior.classes().error
    for entry in content.nodes[::7]:
        assert entry["error"] == pytest.approx(error[entry["node"], entry["class"]], abs=1e-5)


def test_convergence_is_that_of_the_posterior(any_kind):
    content, posterior = content_of(any_kind), any_kind.posterior_
    assert content.converged == posterior.diagnostics().converged
    has_chains = not isinstance(posterior, Mixture) and hasattr(posterior, "z")
    assert bool(content.convergence) == bool(content.plots["traces"]) == has_chains
    assert [weight for weight, _, _ in content.components] == (
        [0.7, 0.3] if isinstance(posterior, Mixture) else []
    )
    if has_chains:
        diagnosis = posterior.diagnostics()
        assert [line[2] for line in content.convergence] == pytest.approx(diagnosis.r_hat)
        kinds = {line[0] for line in content.convergence}
        assert kinds >= ({"u", "Phi"} if posterior.n_classes == 2 else {"u of ash", "u of cedar", "Phi"})
        assert {line[1] for line in content.convergence if line[0] == "Phi"} == {""}


def test_components_tell_their_hyperparameters(classifier):
    components = content_of(of_kind("mixture", classifier)).components
    prior = classifier.posterior_.prior.name
    assert components == [(0.7, prior, "gamma 0.5, delta 0"), (0.3, prior, "gamma 1, delta 0")]


def test_how_right_it_is(any_kind):
    content = content_of(any_kind)
    truth = (moons() if len(content.classes) == 2 else blobs())[1]
    unlabeled = np.setdiff1d(np.arange(len(truth)), any_kind.labels_.nodes)
    answers = any_kind.transduction_
    counts = [
        [int(np.sum((truth[unlabeled] == one) & (answers[unlabeled] == other))) for other in content.classes]
        for one in content.classes
    ]
    assert content.confusion.tolist() == counts
    right = np.mean(answers[unlabeled] == truth[unlabeled])
    assert dict(content.calibration)["share right"] == f"{right:.3f}"
    assert sum(content.plots["reliability"]["counts"]) == len(unlabeled)


def test_a_class_without_a_visible_name_is_called_blank(three):
    nameless = copy(three)
    nameless.classes_ = np.array([" ", *three.classes_[1:]], dtype=object)
    assert content_of(nameless, truth=None).classes == ("(blank)", *three.classes_[1:])


def test_truth_that_is_not_known_is_left_out(three):
    truth = numbers(three, blobs()[1])
    truth[::2] = -1
    content = content_of(three, truth=truth)
    unlabeled = np.setdiff1d(np.arange(len(truth)), three.labels_.nodes)
    assert content.confusion.sum() == np.sum(truth[unlabeled] >= 0)
    nothing = content_of(three, truth=None)
    assert (nothing.calibration, nothing.confusion, nothing.plots["reliability"]) == ([], None, None)
    assert {entry["truth"] for entry in nothing.nodes} == {-1}


@pytest.mark.parametrize("kind", ["draws", "mixture"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_after_more_labels(n_classes, kind, classifier, three):
    """What comes from draws before is answered by expectation propagation after; a mixture stays one."""
    before = of_kind(kind, classifier if n_classes == 2 else three)
    truth = (moons() if n_classes == 2 else blobs())[1]
    after = copy(before)
    after.inference = "auto"
    node = int(before.most_uncertain(1)[0])
    content = content_of(after.partial_fit_labels([node], [truth[node]]))
    assert {entry["label"] for entry in content.nodes if entry["node"] == node} == {numbers(before, truth)[node]}
    assert content.plots["traces"] == []
    assert len(content.components) == (2 if kind == "mixture" else 0)
    assert node not in content.least_certain


def test_as_fitted_by_default():
    """Hyper-parameters learned: a mixture of Gaussians."""
    content = content_of(fit(3, prior="learned", gamma=None))
    assert len(content.components) > 1
    assert sum(weight for weight, _, _ in content.components) == pytest.approx(1)
    assert content.verdict.startswith("An average over")


@pytest.mark.parametrize(
    ("unsure", "told"),
    [
        (
            0,
            "none is more likely “lower” and 190 are more likely “upper”. 190 have a probability of 95% or more; "
            "none has less than 70%.",
        ),
        (
            1,
            "1 is more likely “lower” and 189 are more likely “upper”. 189 have a probability of 95% or more; "
            "1 has less than 70% and deserves a look.",
        ),
        (
            190,
            "190 are more likely “lower” and none is more likely “upper”. None has a probability of 95% or more; "
            "190 have less than 70% and deserve a look.",
        ),
    ],
)
def test_numbers_and_verbs_agree(unsure, told):
    p = np.tile([0.0, 1.0], (200, 1))
    p[:unsure] = [0.6, 0.4]
    suspicious = [Suspicious(0, 0, 1, 0.1)]
    found = sentences(("lower", "upper"), np.array([5, 5]), p, np.arange(190), None, suspicious, True)
    assert found[1] == f"The answer: {told}"
    assert found[2] == "1 of the given labels contradicts the others: see Suspicious labels below."


@pytest.mark.parametrize(
    ("n_classes", "given", "asked", "told"),
    [
        (
            3,
            [2, 0, 1],
            "Of 9 rows, 3 had a class: 2 had “0”, 0 had “1” and 1 had “2”.",
            "The answer: 1 is most likely “0”, none is most likely “1” and 5 are most likely “2”.",
        ),
        (
            7,
            [1, 1, 1, 1, 1, 1, 1],
            "Of 9 rows, 7 had one of 7 classes, 1 row of each.",
            "The answer: the most frequent class is “2” with 5 rows, the rarest “1” with 0 rows.",
        ),
        (
            7,
            [1, 1, 3, 1, 1, 1, 1],
            "Of 9 rows, 9 had one of 7 classes, 1 to 3 rows of each.",
            "The answer: the most",
        ),
    ],
)
def test_sentences_of_many_classes(n_classes, given, asked, told):
    p = np.eye(n_classes)[[0, 2, 2, 2, 2, 2, 0, 0, 0]]
    found = sentences([str(k) for k in range(n_classes)], np.array(given), p, np.arange(6), None, None, False)
    assert found[0].startswith(asked)
    assert found[1].startswith(told)
    assert found[2].startswith("The computation has not converged")


def test_settings_without_effect_are_left_out(classifier):
    """SETTINGS ask for a matern prior and nearest neighbors of a probit model."""
    named = dict(content_of(classifier).settings)
    assert {"n_neighbors", "n_modes"} <= set(named)
    assert not {"width", "epsilon"} & set(named)
    other = clone(classifier).set_params(
        graph="gaussian", width=0.5, prior="learned", model="ginzburg_landau", inference="auto"
    )
    assert set(without_effect(other)) == {"n_neighbors", "tau", "alpha"}


@pytest.mark.parametrize(("n_classes", "drawn"), [(None, True), (2, False), (3, True)])
def test_a_learned_level_set_of_two_classes_is_not_drawn(n_classes, drawn):
    """Of more it is: before the labels are read, draws may make a difference."""
    found = without_effect(GraphClassifier(model="level_set"), n_classes)
    assert ("n_steps" not in found, "n_chains" not in found, "time_limit" not in found) == (drawn,) * 3


def test_what_is_learned_says_how_well_it_is_known(classifier):
    learned = copy(classifier)
    learned.hyperparameters_ = {"gamma": 0.5, "tau": 0.3, "alpha": 2.0, "linear": 3.0}
    learned.hyperparameter_spread_ = {"tau": 1.94, "alpha": 113.0, "linear": 1.0}
    found = content_of(learned).hyperparameters
    assert [line[1:] for line in found] == [
        ("0.5", "fixed, not learned"),
        ("0.3", "learned, to a factor of 1.9"),
        ("2", "learned, but hardly known (to a factor of 110)"),
        ("3", "fixed, not learned"),
    ]
    assert [line[0].rpartition("(")[2] for line in found] == ["gamma)", "tau)", "alpha)", "linear)"]


def test_numbers_of_the_model_are_told_once(classifier):
    """Where they are learned, at the peak; the heaviest choice that is averaged over may have others."""
    content = content_of(fit(2, prior="learned", gamma=None))
    told = {name.rpartition("(")[2].rstrip(")"): each for name, *each in content.hyperparameters}
    assert told["gamma"] == ["1", "the unit of the others"]
    assert not {"prior of u", *told} & set(dict(content.settings))
    assert f"an average over {len(content.components)} choices" in content.rests_on
    given = content_of(classifier)
    assert [line[1:] for line in given.hyperparameters] == [(n, "fixed, not learned") for n in ("0.5", "0.1", "2")]
    assert dict(given.settings)["prior of u"] == classifier.posterior_.prior.name
    assert not {"gamma", "tau", "alpha"} & set(dict(given.settings))
    assert given.rests_on == "Numbers of the model."


def test_how_much_the_graph_counts(classifier):
    """Of a linear question little, of two moons most; under a prior that is not learned always."""
    X = np.random.default_rng(0).standard_normal((300, 8))
    y = np.where(np.arange(300) % 5 == 0, X @ np.arange(8) > 0, None)
    learned = GraphClassifier().fit(X, y)
    rows = {"names": [str(k) for k in range(300)], "columns": (), "cells": (), "truth": None}
    linear = collect(learned, TableRows(**rows), title="", settings={})
    with_graph = [weight for weight, prior, _ in linear.components if "matern" in prior]
    assert linear.graph_weight == pytest.approx(sum(with_graph))
    with_features = sum(weight for weight, prior, _ in linear.components if "linear" in prior)
    assert linear.rests_on.endswith(
        f"{share(linear.graph_weight)} of them use the graph and {share(round(with_features, 9))} a function of the features."
    )
    assert linear.graph_weight < 0.5 < content_of(fit(2, prior="learned", gamma=None)).graph_weight
    assert content_of(classifier).graph_weight == 1


def test_the_labeled_rows_most_like_a_row(three):
    content = content_of(three)
    X, _ = blobs()
    assert content.nearest.keys() == {*content.least_certain.tolist(), *content.most_certain.tolist()}
    labeled = three.labels_.nodes
    for node, near in content.nearest.items():
        distance = np.linalg.norm(X[labeled] - X[node], axis=1)
        assert near == labeled[np.argsort(distance)[:3]].tolist()


def test_a_labeled_row_is_not_like_itself(three):
    labeled = three.labels_.nodes
    found = _nearest(three, labeled, np.arange(120))
    assert all(node not in near and len(near) == 3 for node, near in found.items())


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_shown"), [(200, 30, 30), (200, 5000, 100), (50_000, 30, 20), (10**6, 30, 16)]
)
def test_of_a_long_table_fewer_columns_are_shown(n_rows, n_columns, n_shown):
    assert n_columns_shown(n_rows, n_columns) == n_shown


@pytest.mark.parametrize(
    ("n_sure", "told"), [(0, "0%"), (1, "under 1%"), (2, "1%"), (199, "over 99%"), (200, "100%")]
)
def test_a_share_is_not_told_as_none_or_all_where_it_is_not(n_sure, told):
    p = np.tile([0.4, 0.6], (300, 1))
    p[:n_sure] = [0.01, 0.99]
    assert tiles(p, 100, np.arange(200), None)[2] == (told, "of the others with probability 95% or more")
    assert (share(0.99996, 1), share(0.00004, 1), share(1.0, 1)) == ("over 99.9%", "under 0.1%", "100.0%")


@pytest.mark.parametrize(
    ("confidence", "n_right", "verdict"),
    [(0.8, 950, "too timid"), (0.8, 600, "too sure"), (0.8, 810, "about right"), (0.98, 999, "about right")],
)
def test_the_truth_judges_where_it_is_known(confidence, n_right, verdict):
    """Whatever the labels say; a difference that nobody would act on is none, however sure it is."""
    p = np.tile([confidence, 1 - confidence], (1000, 1))
    judged = calibration.summary(p, np.arange(1000) >= n_right)
    checked = SelfCheck(50, 0.5, 0.9, 1.0, 0.7, -9.0, 0.1)
    assert checked.verdict == "too sure"
    found = sentences(("a", "b"), np.array([25, 25]), p, np.arange(1000), judged, None, True, checked)
    assert found[2:] == [
        f"Judged by the truth, which is known of 1,000 rows without a label, the probabilities are {verdict}: "
        f"{n_right / 1000:.1%} are classified right where {confidence:.1%} were promised. Leave the least sure tenth to a "
        f"person, and {n_right / 1000:.1%} of the rest are right."
    ]
    unknown = sentences(("a", "b"), np.array([25, 25]), p, np.arange(1000), None, None, True, checked)
    assert unknown[2:] == [str(checked)]


def test_pieces_of_a_graph_lie_side_by_side():
    """Three clouds that do not touch, and a pair: each in a square of its own, of its size, and none collapses."""
    rng = np.random.default_rng(0)
    sizes = (40, 20, 10, 2)
    X = np.concatenate([rng.normal(size=(n, 2)) + np.array([99 * k, 0]) for k, n in enumerate(sizes)])
    weights = graph.gaussian(X, tau=2.0)
    modes = spectrum.dense(laplacian.normalized(weights.weights * (weights.weights > 1e-6)))
    assert modes.n_components == 4
    found = plots.embedding(modes, np.full((72, 2), 0.5), np.arange(72))
    assert found["names"][:2] == ["across", "up"]
    assert found["n_pieces"] == 4
    of_three = plots.embedding(modes, np.full((72, 3), 1 / 3), np.arange(72))
    assert of_three["names"][:4] == ["view 1", "view 2", "across", "up"]
    place = np.column_stack(found["coordinates"][:2])
    groups = np.split(place, np.cumsum(sizes)[:-1])
    boxes = [(group.min(axis=0), group.max(axis=0)) for group in groups]
    for k, (low, high) in enumerate(boxes):
        assert len(np.unique(groups[k], axis=0)) == sizes[k]
        np.testing.assert_array_less(high - low, np.sqrt(sizes[k]) + 0.05)
        for other_low, other_high in boxes[:k]:
            assert (low > other_high).any() or (high < other_low).any()


def test_a_report_from_python(tmp_path):
    X, truth = moons()
    classifier = fit(2, inference="ep")
    path = classifier.report(tmp_path / "page.html", X=X, truth=truth, names=[f"moon {k}" for k in range(200)])
    page = path.read_text(encoding="utf-8")
    assert "<title>The class of 200 rows, from 10 known</title>" in page
    assert "moon 199" in page
    assert "classified right" in page
    with pytest.raises(ValueError, match="exists already: choose another name, or replace it with force=True"):
        classifier.report(path)
    assert classifier.report(str(path), force=True, title="Moons").read_text().count("<bdi>Moons</bdi>") == 1
    odd = classifier.report(path, force=True, title="M\udcff\udcffns")  # as of a file whose name is no text
    assert "<bdi>M??ns</bdi>" in odd.read_text()
    with pytest.raises(ValueError, match="names must have one entry for each of the 200 rows of fit, got 3"):
        classifier.report(tmp_path / "other.html", names=["a", "b", "c"])
    with pytest.raises(
        TypeError, match=r"GraphClassifier\.report\(\) got an unexpected keyword argument 'colums'"
    ):
        classifier.report(tmp_path / "other.html", colums=["a"])
    with pytest.raises(NotFittedError):
        clone(classifier).report(tmp_path / "other.html")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_report_shows_the_table_from_before_a_pipeline(tmp_path):
    X, _ = moons()
    scaled = pd.DataFrame(X, columns=[f"scaled {k}" for k in range(X.shape[1])])
    classifier = GraphClassifier(prior="matern", inference="ep").fit(scaled, np.arange(200) // 20 % 2)
    raw = pd.DataFrame(
        {"town": ["Ulm", None] * 100, "income": [1234.5, np.nan] * 100, "member": [True, False] * 100}
    )
    page = classifier.report(tmp_path / "page.html", X=raw).read_text(encoding="utf-8")
    assert '"columns": ["town", "income", "member"]' in page
    assert '"cells": ["Ulm", "1234", "True"]' in page
    assert '"cells": ["", "", "False"]' in page
    assert "scaled 0" not in page
    assert '"name": "1"' in page
    raw.index = [f"person {k}" for k in range(200)]
    page = classifier.report(tmp_path / "page.html", X=raw, force=True).read_text(encoding="utf-8")
    assert '"name": "person 1"' in page
    page = classifier.report(tmp_path / "page.html", X=raw, names=range(200), force=True).read_text(
        encoding="utf-8"
    )
    assert "person 1" not in page


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_wrong_label_is_suspicious(n_classes):
    truth = (moons() if n_classes == 2 else blobs())[1]
    y = few(truth, 10)
    right = fit(n_classes, y, inference="ep")
    node = int(right.labels_.nodes[np.argmax(right.posterior_.left_out()[:, -1])])  # surest of the last class
    y[node] = truth.min()
    found = fit(n_classes, y, inference="ep")
    suspicious = content_of(found).suspicious
    left_out = found.posterior_.left_out()
    place = found.labels_.nodes.tolist().index(node)
    mine = next(each for each in suspicious if each.node == node)
    assert (mine.given, mine.likelier) == (0, n_classes - 1)
    assert mine.probability == pytest.approx(left_out[place, 0])
    own = left_out[np.arange(len(left_out)), found.labels_.y]
    assert len(suspicious) == np.sum((own < 0.2) & (left_out.max(axis=1) > 0.5))


def test_a_model_without_sites_and_with_too_few_draws(classifier):
    """Of Ginzburg-Landau no label can be left out in closed form; and what has not converged is said first."""
    with pytest.warns(ConvergenceWarning):
        found = fit(2, model="ginzburg_landau", inference="sample", n_steps=20, n_chains=2)
    content = content_of(found)
    assert content.suspicious is None
    assert content.sentences[-1].startswith("The computation has not converged")
    assert content_of(classifier).suspicious == []


def test_of_a_large_graph_the_telling_rows_are_drawn():
    ranked, labeled = np.arange(10, 20_000), np.arange(10)
    shown = _shown(ranked, labeled)
    assert len(shown) == len(set(shown)) == MAX_POINTS
    assert set(labeled) | set(ranked[:20]) | set(ranked[-20:]) <= set(shown)


def test_when_every_row_is_labeled():
    """Nothing is left to find, and the page still comes."""
    truth = blobs()[1]
    content = content_of(fit(3, truth, inference="ep"))
    assert content.found == [0, 0, 0]
    assert content.least_certain.size == 0
    assert len(content.nodes) == len(truth)


def test_traces_show_how_often_a_class_leads(three):
    posterior, answer = three.posterior_, three.label_distributions_.argmax(axis=1)
    traces = plots.traces(posterior, posterior.diagnostics(), answer)
    # together, as they were drawn: what z leaves open at a row is filled in for all of them at once
    draws = posterior.latent([trace["node"] for trace in traces])
    for i, trace in enumerate(traces):
        node, k = trace["node"], trace["class"]
        assert k == answer[node]
        leads = draws[:, :, i].argmax(axis=2) == k
        np.testing.assert_array_equal(np.array(trace["chains"]) > 0, leads[:, :: trace["step"]])


def test_the_view_is_nearest_to_the_probabilities(three):
    """Of all sums of the leading eigenvectors, by least squares."""
    modes, p, shown = three.spectrum_, three.label_distributions_, np.arange(3, 60)
    corners = plots._corners(p)
    leading = modes.vectors[:, : modes.n_components + 3]
    expected = (leading @ np.linalg.lstsq(leading, p @ corners)[0])[shown]
    found = plots.embedding(modes, p, shown)
    assert found["names"][:3] == ["view 1", "view 2", f"eigenvector {modes.n_components}"]
    np.testing.assert_allclose(np.array(found["coordinates"][:2]).T, expected, rtol=1e-3, atol=1e-6)


def test_classes_in_doubt_lie_side_by_side():
    """Rows between 0 and 2, between 2 and 4, and so on: a ring whose neighbors are two apart."""
    p = np.full((5, 5), 0.02)
    for k in range(5):
        p[k, [k, (k + 2) % 5]] = 0.48, 0.46 - 0.01 * k
    corners = plots._corners(p)
    np.testing.assert_allclose(np.linalg.norm(corners, axis=1), 1)
    side = np.linalg.norm(corners - np.roll(corners, -2, axis=0), axis=1)
    np.testing.assert_allclose(side, 2 * np.sin(np.pi / 5))
