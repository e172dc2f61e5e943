"""GraphClassifier: what it takes, what it answers, and how it refuses; its answers are those of its parts."""

import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from graphuq import (
    PCN,
    EffectiveSize,
    EllipticalSlice,
    GraphClassifier,
    calibration,
    datasets,
    graph,
    posterior,
    prior,
)
from graphuq.estimator import answers
from graphuq.estimator.rows import unlike_columns
from graphuq.graph.units import in_units, units_of
from graphuq.inference.independence import sample_independently
from graphuq.inference.sampler import Info
from graphuq.inference.sites import Sites
from graphuq.learning import Hyperprior, LogNormal, learn
from graphuq.models import LevelSet, Model, Probit
from graphuq.posterior import Draws, GaussianPosterior, Mixture

# Enough draws for the quick sampler to be kept, so that nothing is compiled.
QUICK = {"n_steps": 500, "n_chains": 8}
EXPECTED_FAILURES = {
    "check_classifiers_classes": "it has a class called -1, which marks unlabeled rows here",
    "check_sample_weight_equivalence_on_dense_data": "a row of weight 0 stays in the graph",
    "check_sample_weight_equivalence_on_sparse_data": "a row of weight 0 stays in the graph",
}


@parametrize_with_checks([GraphClassifier()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_any_number_of_classes_is_part_of_the_contract():
    tags = get_tags(GraphClassifier())
    assert tags.classifier_tags.multi_class
    assert not tags.input_tags.pairwise
    assert get_tags(GraphClassifier(graph="precomputed")).input_tags.pairwise
    assert get_tags(GraphClassifier(n_components=5)).input_tags.sparse


def moons(n_nodes=200, n_labeled=10, seed=0):
    """Two moons, their classes as text, and y with most of them None."""
    data = datasets.two_moons(n_nodes, n_features=4, noise=0.08, seed=seed)
    truth = np.where(data.y > 0, "upper", "lower").astype(object)
    y = np.full(n_nodes, None, dtype=object)
    known = np.random.default_rng(seed).choice(n_nodes, n_labeled, replace=False)
    y[known] = truth[known]
    return data.X, y, truth, known


def few_of(truth, n_each, seed=0):
    """y with so many labels of each class, -1 elsewhere."""
    rng, y = np.random.default_rng(seed), np.full(len(truth), -1)
    for k in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == k), n_each, replace=False)] = k
    return y


X, Y, TRUTH, KNOWN = moons()
SETTINGS = {"prior": "matern", "n_neighbors": 20, "gamma": 0.5, **QUICK}
# Three classes; a row that occurs twice is left out.
IRIS, SPECIES = (each[np.sort(np.unique(load_iris().data, axis=0, return_index=True)[1])] for each in load_iris(return_X_y=True))  # fmt: skip
IRIS_Y = few_of(SPECIES, 5)


@pytest.fixture(scope="module")
def fitted():
    return GraphClassifier(**SETTINGS).fit(X, Y)


@pytest.fixture(scope="module")
def three():
    """Never changed: tests that take in labels work on a copy."""
    return GraphClassifier().fit(IRIS, IRIS_Y)


def test_what_a_fit_says(fitted):
    assert fitted.classes_.tolist() == ["lower", "upper"]
    assert np.mean(fitted.transduction_ == TRUTH) > 0.8
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1)
    assert fitted.posterior_.n_nodes == 200
    assert fitted.hyperparameters_ == {"gamma": 0.5, "tau": 0.1, "alpha": 2.0}
    assert (fitted.n_iter_, fitted.n_features_in_) == (500, 4)
    assert set(fitted.labels_.nodes) == set(KNOWN)
    assert fitted.label_errors_.shape == (200, 2)
    assert fitted.label_errors_.max() < 0.03


# Every number of classes, in every clothing

NUMBERS = {"a": 2, "b": 7, "c": 11, None: None}


def test_three_classes(three):
    assert three.classes_.tolist() == [0, 1, 2]
    assert three.label_distributions_.shape == (len(IRIS), 3)
    assert np.mean(three.transduction_ == SPECIES) > 0.88
    assert three.score(IRIS, SPECIES) == np.mean(three.transduction_ == SPECIES)
    unlabeled = IRIS_Y < 0
    loss = calibration.log_loss(three.label_distributions_[unlabeled], SPECIES[unlabeled])
    assert loss < np.log(3) / 2
    assert three.labels_.counts().tolist() == [5, 5, 5]
    assert three.suspicious_labels(3).likelier.shape == (3,)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(lambda names: np.array(names, dtype=object), id="objects"),
        pytest.param(lambda names: pd.Series(names, dtype="category"), id="pandas categories"),
        pytest.param(lambda names: pl.Series(names), id="polars text"),
        pytest.param(lambda names: pd.Series([NUMBERS[n] for n in names], dtype="Int64"), id="pandas numbers"),
    ],
)
def test_names_of_classes_change_nothing_but_names(column, three):
    """0, 1 and 2 are renamed; their order stays."""
    names = [None if k < 0 else "abc"[k] for k in IRIS_Y]
    renamed = clone(three).fit(IRIS, column(names))
    assert np.array_equal(renamed.label_distributions_, three.label_distributions_)
    assert renamed.classes_[renamed.labels_.y].tolist() == [each for each in column(names) if not pd.isna(each)]


def test_permuted_classes_permute_columns(three):
    order = np.array([2, 0, 1])
    turned = clone(three).fit(IRIS, np.where(IRIS_Y < 0, -1, order[IRIS_Y]))
    np.testing.assert_allclose(turned.label_distributions_[:, order], three.label_distributions_, atol=1e-3)


def test_two_classes_of_three_are_two_classes():
    two = SPECIES < 2
    classifier = GraphClassifier(prior="matern", inference="ep", gamma=0.3).fit(IRIS[two], IRIS_Y[two])
    assert classifier.posterior_.model.n_fields == 1
    assert np.mean(classifier.transduction_ == SPECIES[two]) == 1


def test_a_class_with_a_single_label():
    y = IRIS_Y.copy()
    y[np.flatnonzero(y == 2)[1:]] = -1
    classifier = GraphClassifier().fit(IRIS, y)
    assert classifier.labels_.counts().tolist() == [5, 5, 1]
    lonely = np.flatnonzero(y == 2)[0]
    assert classifier.transduction_[lonely] == 2
    assert np.isfinite(classifier.suspicious_labels().probability).all()


# Objects as well as names


class Logistic(Model):
    """A class of one's own with nothing but `nodes` and `phi`."""

    def __init__(self, nodes, y):
        self.nodes, self.y = nodes, y

    def phi(self, u):
        return jnp.sum(jnp.logaddexp(0.0, -(2 * self.y - 1) * u / 0.3))


@dataclass(frozen=True)
class Softmax(Model):
    """The same for any number of classes, as a dataclass."""

    nodes: np.ndarray | None = None
    y: np.ndarray | None = None
    n_classes: int | None = None

    @property
    def n_fields(self):
        return self.n_classes

    def phi(self, u):
        own = jnp.take_along_axis(u, jnp.asarray(self.y)[:, None], axis=1)
        return jnp.sum(jax.nn.logsumexp((u - own) / 0.3, axis=1))


@dataclass
class OwnProbit(Model):
    """Probit as one would write it: all that its noise is learned by, and the inherited numbers of classes and fields."""

    nodes: np.ndarray | None = None
    y: np.ndarray | None = None
    gamma: float = 0.1

    @property
    def noise(self):
        return self.gamma

    def phi(self, u):
        return -jnp.sum(jax.scipy.special.log_ndtr((2 * jnp.asarray(self.y) - 1) * u / self.gamma))

    def sites(self):
        return Sites(2.0 * self.y - 1, self.gamma**2, -np.inf, noise_slope=2 * self.gamma)

    def hyperprior(self):
        return Hyperprior(mistakes=None)


@dataclass(frozen=True)
class Still:
    """A sampler of one's own that never moves."""

    def prepare(self, target):
        return target

    def init(self, key, z, problem):
        return z

    def step(self, key, z, problem, warm):
        return z, Info(jnp.ones((), z.dtype), jnp.ones((), jnp.int32))

    def draw(self, z, problem):
        return z


def test_objects_stand_for_names(fitted):
    """Recipes, functions and templates give what the names with the same settings give, to the last digit."""
    again = GraphClassifier(
        graph=graph.knn(n_neighbors=20),
        prior=prior.matern(tau=0.1, alpha=2.0),
        model=Probit(gamma=0.5),
        **QUICK,
    )
    assert clone(again).get_params()["graph"] is not None
    assert "graph" in repr(again)
    again = clone(again).fit(X, Y)
    assert np.array_equal(again.label_distributions_, fitted.label_distributions_)
    other = GraphClassifier(
        graph=lambda X: graph.knn(X, n_neighbors=20).weights,
        prior=lambda modes: prior.matern(modes, tau=0.1, alpha=2.0),
        model=lambda nodes, y: Probit(nodes, y, gamma=0.5),
        **QUICK,
    ).fit(X, Y)
    np.testing.assert_allclose(other.label_distributions_, fitted.label_distributions_, atol=1e-9)
    assert other.hyperparameters_ == again.hyperparameters_ == {"gamma": 0.5}


def test_templates_and_classes_of_models():
    with_mistakes = GraphClassifier(**SETTINGS | {"gamma": None}, model=Probit(gamma=0.5, delta=0.05)).fit(X, Y)
    assert with_mistakes.posterior_.model.delta == 0.05
    bare = GraphClassifier(prior="matern", inference="ep", model=LevelSet).fit(X, Y)
    assert isinstance(bare.posterior_.model, LevelSet)
    assert bare.posterior_.model.gamma == LevelSet.gamma


def test_a_graph_from_weights_alone_places_no_new_rows():
    classifier = GraphClassifier(graph=lambda X: graph.knn(X).weights, prior="matern", inference="ep").fit(X, Y)
    assert np.array_equal(classifier.predict(X), classifier.transduction_)
    with pytest.raises(TypeError, match="made from weights alone and cannot place new rows"):
        classifier.predict(X + 0.01)
    with pytest.raises(ValueError, match="The graph has 100 nodes and X has 200 rows"):
        GraphClassifier(graph=lambda X: graph.knn(X[:100])).fit(X, Y)


OWN = {"prior": "matern", "tau": 0.3, "n_steps": 1000, "n_chains": 4, "inference": "sample"}


def test_a_model_of_ones_own():
    """With `phi` alone it is drawn, and takes in labels; each time it is compiled, so here by a simple sampler."""
    classifier = clone(GraphClassifier(model=Logistic, sampler=EllipticalSlice(), **OWN)).fit(X, Y)
    assert np.mean(classifier.transduction_ == TRUTH) > 0.9
    assert classifier.posterior_.diagnostics().converged
    # a logistic curve of scale s is close to a normal one of deviation 1.7 s
    near = GraphClassifier(prior="matern", tau=0.3, gamma=1.7 * 0.3, inference="ep").fit(X, Y)
    means = [each.posterior_.label_mean() for each in (classifier, near)]
    assert np.abs(means[0] - means[1]).mean() < 0.05
    classifier.partial_fit_labels([0, KNOWN[0]], [TRUTH[0], None])
    assert set(classifier.posterior_.model.nodes) == {0, *KNOWN[1:]}
    assert isinstance(classifier.posterior_.model, Logistic)
    with pytest.raises(TypeError, match="Logistic offers no sites, so no label can be left out"):
        classifier.suspicious_labels()
    with pytest.raises(TypeError, match="Logistic offers no sites"):
        GraphClassifier(model=Logistic, inference="ep").fit(X, Y)
    with pytest.raises(TypeError, match="Logistic is a model of 2 classes, and y has 3"):
        GraphClassifier(model=Logistic).fit(IRIS, IRIS_Y)


def test_a_model_of_ones_own_with_many_classes():
    """By NUTS, as the model asks for nothing else."""
    classifier = GraphClassifier(model=Softmax(), **OWN).fit(IRIS, IRIS_Y)
    assert classifier.posterior_.model.n_classes == 3
    near = GraphClassifier(prior="matern", tau=0.3, gamma=0.3 * np.pi / np.sqrt(6), inference="ep").fit(
        IRIS, IRIS_Y
    )
    # noise of Gumbel has the deviation pi / sqrt(6)
    noise_free = [each.posterior_.classes(noise=False).probability for each in (classifier, near)]
    assert np.abs(noise_free[0] - noise_free[1]).mean() < 0.05


def test_a_model_of_ones_own_is_learned_and_takes_labels():
    class Same(Probit):
        def hyperprior(self):
            return Hyperprior(mistakes=None)

    own, same = (GraphClassifier(model=model(), inference="ep").fit(X, Y) for model in (OwnProbit, Same))
    new = np.setdiff1d(np.arange(len(X)), KNOWN)[:2]
    for each in (own, same):
        each.partial_fit_labels([*new, KNOWN[0]], [*TRUTH[new], None])
    assert isinstance(own.posterior_.model, OwnProbit)
    np.testing.assert_allclose(own.label_distributions_, same.label_distributions_, atol=1e-9)


def test_a_sampler_of_ones_own():
    settings = SETTINGS | {"inference": "sample", "n_chains": 4, "n_steps": 5}
    with pytest.warns(ConvergenceWarning):
        still = GraphClassifier(**settings, sampler=Still()).fit(X, Y)
    z = still.posterior_.z
    assert np.array_equal(z, np.broadcast_to(z[:, :1], z.shape))
    assert "Still" in still.posterior_.settings["sampler"]
    assert clone(still).sampler == Still()


def test_a_sampler_is_used_by_auto_too(fitted):
    walking = GraphClassifier(**SETTINGS | {"gamma": 1.0}, sampler=EllipticalSlice()).fit(X, Y)
    assert "EllipticalSlice" in walking.posterior_.settings["sampler"]
    quick = GraphClassifier(**SETTINGS | {"gamma": 1.0}).fit(X, Y)
    error = np.hypot(walking.label_errors_, quick.label_errors_) + 1e-3
    assert np.abs((walking.label_distributions_ - quick.label_distributions_) / error).max() < 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"graph": 3}, "graph must be one of knn, .* or a function of X that makes a graph, got 3"),
        ({"prior": 3}, "prior must be one of learned, .* or a function of a spectrum"),
        ({"model": 3}, "model takes a name, a model such as Probit"),
        ({"sampler": "pcn", "inference": "sample", "prior": "matern"}, "sampler takes a sampler such as PCN"),
        ({"sampler": PCN, "inference": "sample", "prior": "matern"}, "sampler takes a sampler such as PCN"),
        ({"model": "ginzburg_landau", "inference": "ep"}, "GinzburgLandau offers no sites"),
    ],
)
def test_objects_that_are_none(settings, message):
    with pytest.raises(TypeError, match=message):
        GraphClassifier(**settings).fit(X, Y)


# Every kind of posterior answers everything


def kinds_of_posterior():
    """Name -> a function that makes a classifier, the leaf its posterior is, and the number of classes."""
    two = {"prior": "matern", "n_neighbors": 20, "gamma": 0.5}
    return {
        "learned, two classes": (lambda: GraphClassifier().fit(X, Y), Mixture, 2),
        "ep, two classes": (lambda: GraphClassifier(**two, inference="ep").fit(X, Y), GaussianPosterior, 2),
        "drawn, two classes": (lambda: GraphClassifier(**SETTINGS).fit(X, Y), Draws, 2),
        "ep, three classes": (
            lambda: GraphClassifier(**two, inference="ep").fit(IRIS, IRIS_Y),
            GaussianPosterior,
            3,
        ),
    }


def some_rows(classifier):
    """A few without a label, and one with."""
    nodes = classifier.labels_.nodes
    return np.array([*np.setdiff1d([3, 1, 120, 60], nodes), nodes[0]])


def check_every_answer(found, n_classes, where, new):
    """Shapes, and what probabilities have to be; of nodes, of a mask, and of new rows."""
    n_nodes, n_fields = found.n_nodes, 1 if n_classes == 2 else n_classes
    assert found.n_classes == n_classes
    mask = np.zeros(n_nodes, dtype=bool)
    mask[where] = True
    for rows, n in ((None, n_nodes), (where, len(where)), (mask, len(where)), (new, len(new))):
        for noise in (True, False):
            classes = found.classes(rows, noise=noise)
            assert classes.probability.shape == classes.error.shape == (n, n_classes)
            np.testing.assert_allclose(classes.probability.sum(axis=1), 1, atol=1e-9)
            assert ((classes.probability >= 0) & (classes.probability <= 1)).all()
            assert (classes.error >= 0).all()
        certain = found.probability(rows)
        assert ((certain > 0) & (certain < 1)).all()
        labels = found.labels(rows)
        assert labels.mean.shape == ((n,) if n_classes == 2 else (n, n_classes))
        assert labels.variance.shape == (n,)
        mean, variance = found.moments(rows)
        assert mean.shape == variance.shape == (n, n_fields)
        assert (variance >= 0).all()
    draws = found.latent(where)
    assert draws.shape[2:] == ((len(where),) if n_classes == 2 else (len(where), n_classes))
    mean, variance = found.moments(where)
    flat = draws.reshape(-1, len(where), n_fields)
    assert np.abs((flat.mean(axis=0) - mean) / np.sqrt(variance / 50)).max() < 5  # 50 independent draws at least
    np.testing.assert_allclose(found.probability(mask), found.probability(np.sort(where)))
    np.testing.assert_allclose(found.labels().variance.mean(), found.mean_label_variance())
    assert np.array_equal(found.label_variance(where), found.labels(where).variance)
    assert np.array_equal(found.label_mean(where), found.labels(where).mean)
    left_out = found.left_out()
    assert left_out.shape == (len(found.model.nodes), n_classes)
    np.testing.assert_allclose(left_out.sum(axis=1), 1, atol=1e-9)
    assert not set(found.most_uncertain(5)) & set(found.model.nodes)
    assert found.diagnostics().converged
    assert "onverged" in str(found.diagnostics())


@pytest.mark.parametrize("kind", kinds_of_posterior())
def test_every_posterior_answers_everything(kind, tmp_path):
    make, leaf, n_classes = kinds_of_posterior()[kind]
    classifier = make()
    rows = X if n_classes == 2 else IRIS
    new = classifier.locate(rows[:4] + 0.01)[2]
    where = some_rows(classifier)
    assert isinstance(classifier.posterior_, leaf)
    check_every_answer(classifier.posterior_, n_classes, where, new)
    classifier.posterior_.save(tmp_path / "posterior.npz")
    again = posterior.load(tmp_path / "posterior.npz")
    np.testing.assert_allclose(again.probability(where), classifier.posterior_.probability(where), atol=1e-6)

    row = classifier.most_uncertain(1)[0]
    before = classifier.label_distributions_[row, 0]
    classifier.partial_fit_labels(row, classifier.classes_[0])
    assert row in classifier.posterior_.model.nodes
    check_every_answer(classifier.posterior_, n_classes, where, new)
    assert classifier.label_distributions_[row, 0] > before


def test_components_of_a_mixture_are_drawn_from_seeds_of_their_own(three, monkeypatch):
    """Their errors are added up as those of independent draws."""
    seeds = []

    def sampled(classifier, seed, prior, model, of):
        seeds.append(seed)
        return GaussianPosterior.of(prior, model)

    monkeypatch.setattr("graphuq.estimator.beliefs._sampled", sampled)
    deepcopy(three).draw()
    assert len(set(seeds)) == len(seeds) > 1
    assert seeds[0] == three._seen.seed


def test_three_classes_learned_and_drawn(three, monkeypatch):
    """Exact draws at the heaviest hyper-parameters agree with expectation propagation there."""
    where, new = some_rows(three), three.locate(IRIS[:4] + 0.01)[2]
    check_every_answer(three.posterior_, 3, where, new)
    monkeypatch.setattr("graphuq.estimator.beliefs.DRAWN_WEIGHT", 1e-6)
    drawn = deepcopy(three).set_params(inference="sample", n_steps=400, n_chains=4).draw()
    (draws,) = drawn.posterior_.components
    assert draws.z.shape[:2] == (4, 400)
    check_every_answer(draws, 3, where, new)
    check_every_answer(drawn.posterior_, 3, where, new)
    assert drawn.n_iter_ == 400
    assert drawn.posterior_.temperature == three.posterior_.temperature != 1
    assert np.abs(draws.probability() - three.posterior_.components[0].probability()).mean() < 0.02


def test_sampling_a_learned_prior_draws_from_its_mixture(monkeypatch):
    monkeypatch.setattr("graphuq.estimator.beliefs.sample", sample_without_compiling)
    monkeypatch.setattr("graphuq.estimator.beliefs.DRAWN_WEIGHT", 0.25)
    quick = GraphClassifier().fit(X, Y).posterior_
    drawn = GraphClassifier(inference="sample", **QUICK).fit(X, Y)
    assert isinstance(drawn.posterior_, Mixture)
    assert all(isinstance(each, Draws) for each in drawn.posterior_.components)
    n_drawn = len(drawn.posterior_.weights)
    assert quick.weights[: n_drawn - 1].sum() < 0.25 <= quick.weights[:n_drawn].sum()
    np.testing.assert_allclose(drawn.posterior_.weights, quick.weights[:n_drawn] / quick.weights[:n_drawn].sum())
    check_every_answer(drawn.posterior_, 2, some_rows(drawn), drawn.locate(X[:4] + 0.01)[2])
    for draws, ep in zip(drawn.posterior_.components, quick.components[:n_drawn], strict=True):
        assert np.abs(draws.probability() - ep.probability()).mean() < 0.02


def sample_without_compiling(prior, model, sampler=None, *, n_steps, n_chains, seed, **settings):
    """Exact draws, with enough steps between them where labels may be mistakes."""
    return sample_independently(prior, model, n_steps=n_steps, n_chains=n_chains, seed=seed, thin=10)


# Rows of fit, and new ones


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prior": "full"},
        {"prior": "approximate", "n_modes": 40},
        {"prior": "project", "n_modes": 40},
        {"prior": "learned", "gamma": None},
        {"graph": "self_tuning", "prior": "approximate", "n_modes": 40},
        {"graph": "gaussian", "width": 0.5},
    ],
    ids=str,
)
def test_rows_of_fit_get_their_own_answer_back(settings):
    """Labeled and unlabeled alike, to the last digit."""
    classifier = GraphClassifier(**SETTINGS | settings).fit(X, Y)
    found = classifier.label_distributions_
    assert np.array_equal(classifier.predict_proba(X), found)
    assert np.array_equal(classifier.predict(X[::-1]), classifier.transduction_[::-1])
    np.testing.assert_allclose(classifier.uncertainty(X), 4 * found[:, 0] * found[:, 1], atol=1e-12)
    nodes, new, where = classifier.locate(X[[5, 3]])
    assert (nodes.tolist(), new.tolist(), where) == ([5, 3], [False, False], None)


def test_rows_of_fit_of_three_classes(three):
    assert np.array_equal(three.predict_proba(IRIS), three.label_distributions_)
    assert np.array_equal(three.predict_log_proba(IRIS), np.log(three.label_distributions_))
    assert np.array_equal(three.predict(IRIS[::-1]), three.transduction_[::-1])
    mixed = np.concatenate([IRIS[7:8], IRIS[:1] + 0.3])
    nodes, new, where = three.locate(mixed)
    assert (nodes.tolist(), new.tolist(), len(where)) == ([7, -1], [False, True], 1)
    np.testing.assert_allclose(three.predict_proba(mixed)[1:], three.posterior_.probability(where), atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prior": "learned", "gamma": None},
        {"prior": "full"},
        {"prior": "approximate"},
        {"graph": "self_tuning", "prior": "full"},
    ],
    ids=str,
)
def test_new_rows_are_classified_as_well_as_those_of_fit(settings):
    digits = load_digits()
    pair = np.isin(digits.target, (3, 8))
    features, truth = digits.data[pair], digits.target[pair]
    y = np.full(200, -1)
    for digit in (3, 8):
        known = np.flatnonzero(truth[:200] == digit)[:10]
        y[known] = digit
    classifier = GraphClassifier(**SETTINGS | {"gamma": 1.0} | settings).fit(features[:200], y)
    new = calibration.log_loss(classifier.predict_proba(features[200:]), truth[200:] == 8)
    old = calibration.log_loss(classifier.label_distributions_[y < 0], truth[:200][y < 0] == 8)
    assert new < old + 0.1
    assert classifier.score(features[200:], truth[200:]) > 0.85


def test_new_rows_of_many_classes():
    """Digits 0 to 4, ten labels each, half the rows kept for later."""
    digits = load_digits(n_class=5)
    half = len(digits.target) // 2
    y = few_of(digits.target[:half], 10)
    classifier = GraphClassifier(prior="matern", tau=0.3, gamma=0.3, inference="ep").fit(digits.data[:half], y)
    new = calibration.log_loss(classifier.predict_proba(digits.data[half:]), digits.target[half:])
    old = calibration.log_loss(classifier.label_distributions_[y < 0], digits.target[:half][y < 0])
    assert new < old + 0.1
    assert classifier.score(digits.data[half:], digits.target[half:]) > 0.85


def test_a_row_that_differs_in_rounding_is_the_same_row(fitted, three):
    for classifier, rows in ((fitted, X), (three, IRIS)):
        for tiny, bound in ((1e-12, 1e-9), (1e-4, 0.01)):
            near = rows * (1 + tiny)
            np.testing.assert_allclose(classifier.predict_proba(near), classifier.label_distributions_, atol=bound)


def test_a_row_next_to_others_is_like_them(fitted):
    assert np.mean(fitted.predict(X + 0.01) == fitted.transduction_) > 0.97


def test_a_row_far_from_all_others_is_a_coin_toss(fitted):
    direction = np.full((1, X.shape[1]), 1.0)
    sure = [
        np.abs(fitted.predict_proba(X[:20] + distance * direction)[:, 1] - 0.5).mean() for distance in (0, 2, 5)
    ]
    assert sure[0] > sure[1] > sure[2]
    with pytest.warns(UserWarning, match="20 new points have no weight"):
        nowhere = fitted.predict_proba(X[:20] + 1e6 * direction)
    np.testing.assert_allclose(nowhere, 0.5)


def test_identical_rows_of_different_classes_are_no_secret():
    twice, y = np.concatenate([X, X[KNOWN[:1]]]), np.append(Y, "lower" if Y[KNOWN[0]] == "upper" else "upper")
    with pytest.warns(UserWarning, match=f"Rows {KNOWN[0]} and 200 are the same in every feature"):
        found = GraphClassifier(**SETTINGS).fit(twice, y)
    assert np.isfinite(found.label_distributions_).all()


def test_equal_rows_get_equal_answers(three):
    """Also of labeled and unlabeled ones; sparse or dense, with zeros stored or not."""
    twice = np.concatenate([IRIS, IRIS[:3], IRIS[IRIS_Y >= 0][:1]])
    y = np.concatenate([IRIS_Y, [-1] * 4])
    classifier = GraphClassifier(prior="matern", inference="ep", gamma=0.5).fit(twice, y)
    found = classifier.label_distributions_
    assert np.array_equal(found[-4:-1], found[:3])
    assert np.array_equal(found[-1], found[np.flatnonzero(IRIS_Y >= 0)[0]])
    assert np.array_equal(classifier.predict_proba(twice), found)
    table = np.where(np.abs(X) < 0.05, 0.0, X)
    stored = csr_matrix(table)
    stored[0, 0] = stored[0, 0]  # stored, even if zero
    sparse = GraphClassifier(**SETTINGS | {"n_components": 4}).fit(stored, Y)
    assert np.array_equal(sparse.predict_proba(csr_matrix(table)), sparse.label_distributions_)


def test_a_new_label_of_a_row_that_occurs_twice():
    later = GraphClassifier(**SETTINGS).fit(np.concatenate([X, X[:1]]), np.append(Y, None))
    later.partial_fit_labels(200, Y[KNOWN[0]])
    assert np.array_equal(later.predict_proba(X[:1]), later.label_distributions_[-1:])
    assert np.array_equal(later.label_distributions_[0], later.label_distributions_[200])
    with pytest.warns(UserWarning, match="Rows 0 and 200 are the same"):
        later.partial_fit_labels(0, Y[KNOWN[Y[KNOWN] != Y[KNOWN[0]]][0]])


def test_a_tie_is_the_first_class_everywhere():
    weights = np.kron(np.eye(3), np.ones((4, 4)) - np.eye(4))
    y = np.array([0, -1, -1, -1, 1, *[-1] * 7])
    with pytest.warns(UserWarning, match="4 rows lie in parts"):
        classifier = GraphClassifier(graph="precomputed", prior="matern", inference="ep").fit(weights, y)
    np.testing.assert_allclose(classifier.label_distributions_[8:], 0.5, atol=1e-13)
    assert classifier.transduction_[8:].tolist() == classifier.predict(weights)[8:].tolist() == [0] * 4
    assert classifier.score(weights, classifier.transduction_) == 1


# New labels


def test_answers_that_another_thread_overtakes_are_not_kept(three, monkeypatch):
    """A label is added while someone else waits for probabilities: theirs are of before, and all later ones of now."""
    reader, of_fit = copy(three), answers.of_fit
    row = int(reader.most_uncertain(1)[0])
    reader._believe(reader.labels_, replace(reader.posterior_))  # nothing is cached

    def overtaken(classifier):
        found = of_fit(classifier)
        monkeypatch.setattr(answers, "of_fit", of_fit)
        reader.partial_fit_labels([row], [SPECIES[row]])
        return found

    monkeypatch.setattr(answers, "of_fit", overtaken)
    np.testing.assert_allclose(reader.predict_proba(IRIS), three.label_distributions_, atol=1e-12)
    assert np.abs(reader.label_distributions_ - three.label_distributions_).max() > 0.1
    np.testing.assert_allclose(reader.predict_proba(IRIS), reader.posterior_.probability(), atol=1e-12)


def cold(before, nodes, y):
    """What expectation propagation that starts from nothing says, hyper-parameters as before."""
    parts = before.components if isinstance(before, Mixture) else (before,)
    weights = before.weights if isinstance(before, Mixture) else np.ones(1)
    log_weights, found = [], []
    for weight, each in zip(weights, parts, strict=True):
        same = {"negligible": each.negligible}
        old = GaussianPosterior.of(each.prior, each.model, **same)
        new = GaussianPosterior.of(each.prior, replace(each.model, nodes=nodes, y=y), **same)
        if not new.fit.converged:  # there is nothing to compare with where a cold start finds no fixed point
            new = each.with_labels(nodes, y)
        log_weights.append(np.log(weight) + new.fit.log_evidence - old.fit.log_evidence)
        found.append(new)
    if not isinstance(before, Mixture):
        return found[0].probability()
    shares = np.exp(np.array(log_weights) - max(log_weights))
    mixed = replace(before, components=tuple(found), weights=shares / shares.sum())
    return (mixed if before.temperature == 1 else mixed.tempered()).probability()


@pytest.mark.parametrize(
    "settings", [{}, {"prior": "matern", "gamma": 0.5, "inference": "ep"}, {"model": "level_set"}], ids=str
)
def test_new_labels_are_taken_in_as_if_they_had_been_there(settings):
    """Added, replaced and taken away: the fixed point is that of a cold start."""
    classifier = GraphClassifier(**settings).fit(X, Y)
    before, graph_, spectrum_ = classifier.posterior_, classifier.graph_, classifier.spectrum_
    new, wrong, gone = np.setdiff1d(np.arange(200), KNOWN)[:5], KNOWN[:2], KNOWN[-2:]
    classifier.partial_fit_labels(
        np.concatenate([new, wrong, gone]),
        [*TRUTH[new], *np.where(TRUTH[wrong] == "upper", "lower", "upper"), None, None],
    )
    labels = classifier.labels_
    assert set(labels.nodes) == (set(KNOWN) | set(new)) - set(gone)
    assert classifier.graph_ is graph_
    assert classifier.spectrum_ is spectrum_
    expected = cold(before, labels.nodes, labels.y)
    np.testing.assert_allclose(classifier.label_distributions_, expected, atol=1e-5)
    assert np.array_equal(classifier.predict_proba(X), classifier.label_distributions_)


def test_new_labels_of_three_classes(three):
    classifier, before = deepcopy(three), three.posterior_
    given = np.flatnonzero(IRIS_Y >= 0)
    new = np.flatnonzero(IRIS_Y < 0)[[2, 50, 100, 101]]
    classifier.partial_fit_labels([*new, given[0], given[-1]], [*SPECIES[new], 1, -1])
    labels = classifier.labels_
    assert labels.counts().tolist() == np.bincount([*IRIS_Y[given][1:-1], *SPECIES[new], 1]).tolist()
    expected = cold(before, labels.nodes, labels.y)
    np.testing.assert_allclose(classifier.label_distributions_, expected, atol=1e-5)
    # and back again
    classifier.partial_fit_labels([*new, given[0], given[-1]], [*[-1] * 4, IRIS_Y[given[0]], IRIS_Y[given[-1]]])
    assert np.array_equal(classifier.labels_.nodes, three.labels_.nodes)
    np.testing.assert_allclose(classifier.posterior_.weights.sum(), 1)
    expected = cold(before, three.labels_.nodes, three.labels_.y)
    np.testing.assert_allclose(classifier.label_distributions_, expected, atol=1e-5)


def test_new_labels_are_close_to_a_fit_with_all_of_them():
    later = np.concatenate([KNOWN[Y[KNOWN] == name][2:] for name in ("lower", "upper")])
    few = Y.copy()
    few[later] = None
    classifier = GraphClassifier(**SETTINGS).fit(X, few)
    classifier.partial_fit_labels(later, Y[later])
    whole = GraphClassifier(**SETTINGS).fit(X, Y)
    quick, right = classifier.label_distributions_, whole.label_distributions_
    assert np.abs(quick - right).mean() < 0.01
    near = X[:50] + 1e-3
    assert np.abs(classifier.predict_proba(near) - whole.predict_proba(near)).mean() < 0.01
    assert np.array_equal(classifier.draw().label_distributions_, right)
    assert np.array_equal(classifier.predict_proba(near), whole.predict_proba(near))
    classifier.partial_fit_labels(later, np.full(len(later), None)).draw()
    assert np.array_equal(classifier.posterior_.z, GraphClassifier(**SETTINGS).fit(X, few).posterior_.z)


def test_answers_cannot_be_written_to(fitted):
    for each in (fitted, deepcopy(fitted)):
        for found in (each.label_distributions_, each.label_errors_):
            with pytest.raises(ValueError, match="read-only"):
                found[0] = 0.5
        each.predict_proba(X[:2])[0] = 0.5  # a copy
        np.testing.assert_array_equal(each.predict_proba(X[:2]), each.label_distributions_[:2])


class Plain(Model):
    """A model with sites, and a hyperprior, that is no dataclass."""

    noise = 0.2

    def __init__(self, nodes, y):
        self.inner = Probit(nodes, y, gamma=self.noise)
        self.nodes, self.y = self.inner.nodes, self.inner.y
        self.sites, self.hyperprior = self.inner.sites, self.inner.hyperprior

    def phi(self, u):
        return self.inner.phi(u)


def test_a_plain_class_takes_in_labels_but_has_no_noise_to_learn():
    settings = {"prior": "matern", "tau": 0.3, "inference": "ep"}
    few = Y.copy()
    few[KNOWN[5]] = None
    plain = GraphClassifier(**settings, model=Plain).fit(X, few).partial_fit_labels([KNOWN[5]], Y[KNOWN[5:6]])
    known = GraphClassifier(**settings, gamma=0.2).fit(X, Y)
    np.testing.assert_allclose(plain.label_distributions_, known.label_distributions_, atol=1e-6)
    told = r"Plain must be a dataclass with the fields nodes, y, gamma"
    with pytest.raises(TypeError, match=told):
        GraphClassifier(model=Plain).fit(X, Y)
    with pytest.raises(TypeError, match=told):
        learn(known.spectrum_, plain.posterior_.model)
    with pytest.raises(TypeError, match=r"Plain must be a dataclass with the fields nodes, y:"):
        plain.posterior_.with_labels(np.array([0, 1]), np.array([0, 1]))


def test_new_labels_are_taken_in_without_a_draw(monkeypatch):
    classifier = GraphClassifier(prior="matern", tau=0.3).fit(X, Y)
    monkeypatch.setattr("graphuq.inference.run.sample", None)
    monkeypatch.setattr("graphuq.inference.run.sample_independently", None)
    truth = classifier.transduction_
    for n_new in range(1, 21):
        row = classifier.most_uncertain(1)[0]
        classifier.partial_fit_labels([row], [truth[row]])
        assert len(classifier.labels_.nodes) == len(KNOWN) + n_new
        assert classifier.predict_proba(X[[row]]).max() > 0.9
    with pytest.raises(TypeError, match="not callable"):
        classifier.draw()


def test_who_asked_for_sampling_gets_draws(monkeypatch):
    monkeypatch.setattr("graphuq.estimator.beliefs.sample", sample_without_compiling)
    classifier = GraphClassifier(**SETTINGS | {"inference": "sample", "prior": "matern", "tau": 0.3}).fit(X, Y)
    classifier.partial_fit_labels(0, "upper")
    assert isinstance(classifier.posterior_, Draws)
    assert 0 in classifier.posterior_.model.nodes
    assert np.array_equal(classifier.label_distributions_, classifier.posterior_.probability())


def test_drawn_mixtures_stay_mixtures_with_new_labels(monkeypatch):
    """The weights follow the labels as those of a cold start do."""
    monkeypatch.setattr("graphuq.estimator.beliefs.sample", sample_without_compiling)
    classifier = GraphClassifier(n_steps=20, n_chains=2).fit(X, Y).set_params(inference="sample")
    before = classifier.posterior_ = replace(classifier.posterior_, temperature=0.8)
    after = classifier.draw().partial_fit_labels(0, "upper").posterior_
    assert all(isinstance(each, Draws) and 0 in each.model.nodes for each in after.components)
    assert after.temperature == before.temperature == 0.8
    labels, weights = classifier.labels_, {}
    for weight, each in zip(before.weights, before.components, strict=True):
        models = (replace(each.model, nodes=labels.nodes, y=labels.y), each.model)
        new, old = (GaussianPosterior.of(each.prior, model).fit.log_evidence for model in models)
        weights[id(each.prior)] = weight * np.exp(new - old)
    kept = np.array([weights[id(each.prior)] for each in after.components])
    assert len(kept) > 3
    assert kept[:-1].sum() < 0.9 * sum(weights.values()) <= kept.sum()
    np.testing.assert_allclose(after.weights, kept / kept.sum(), rtol=1e-3)
    for each in ("lower", "upper", None, "upper"):  # and none of the lighter ones is lost on the way
        classifier.partial_fit_labels(0, each)
    again = classifier.draw().posterior_
    assert [id(each.prior) for each in again.components] == [id(each.prior) for each in after.components]
    np.testing.assert_allclose(again.weights, after.weights, rtol=1e-3)
    assert len(again.drawn_from.components) == len(before.components) > len(again.components)
    classifier.posterior_ = replace(again, temperature=0.7)  # that of the draws counts, not what it was before
    assert classifier.partial_fit_labels(1, "upper").posterior_.temperature == 0.7
    assert classifier.posterior_.drawn_from.temperature == 0.7


@pytest.mark.parametrize("settings", [{}, {"prior": "matern", "inference": "ep"}], ids=str)
def test_labels_that_cannot_be_reconciled_are_drawn(settings, monkeypatch):
    """Of each component, if there are several."""
    classifier = GraphClassifier(n_steps=20, n_chains=2, **settings).fit(X, Y)
    before = classifier.posterior_
    monkeypatch.setattr(
        "graphuq.estimator.beliefs.sample_enough", lambda *a, time_limit, **k: sample_without_compiling(*a, **k)
    )
    monkeypatch.setattr("graphuq.estimator.beliefs.settled", lambda posterior: False)
    after = classifier.partial_fit_labels(0, "upper").posterior_
    assert type(after) is (Mixture if isinstance(before, Mixture) else Draws)
    assert all(isinstance(each, Draws) for each in (after.components if isinstance(after, Mixture) else [after]))


@pytest.mark.filterwarnings("ignore:Not converged")
def test_ginzburg_landau_is_drawn_and_draws_anew_for_new_labels():
    settings = {"model": "ginzburg_landau", "gamma": 0.6, "n_modes": 30, "n_steps": 100}
    classifier = GraphClassifier(**SETTINGS | settings).fit(X, Y)
    assert np.mean(classifier.transduction_ == TRUTH) > 0.85
    assert classifier.hyperparameters_["epsilon"] == 10.0
    assert np.array_equal(classifier.predict_proba(X), classifier.label_distributions_)
    row = np.setdiff1d(np.arange(len(X)), KNOWN)[0]
    classifier.partial_fit_labels([row, KNOWN[0]], ["upper", None])  # as many labels: nothing is compiled again
    assert row in classifier.posterior_.model.nodes
    assert np.array_equal(classifier.label_distributions_, classifier.posterior_.probability())


@pytest.mark.parametrize("n_each", [2, 3])
def test_a_new_row_among_very_few_is_like_those_near_it(n_each):
    """All of them are neighbors of each other, so that no eigenvector but the first has a value at a new row."""
    rng = np.random.default_rng(0)
    features = np.vstack([rng.normal(size=(n_each, 2)), rng.normal(size=(n_each, 2)) + 4])
    new = np.vstack([rng.normal(size=(10, 2)), rng.normal(size=(10, 2)) + 4])
    settings = {"n_neighbors": 2 * n_each - 1}
    classifier = GraphClassifier(**settings).fit(features, np.repeat(["one", "other"], n_each))
    assert (classifier.predict(new) == np.repeat(["one", "other"], 10)).all()


@pytest.mark.filterwarnings("ignore:Not converged")
def test_a_model_without_evidence_takes_the_learned_prior_at_unit_scale():
    """Its wells lie at -1 and 1, and the prior was learned in units of probit's noise."""
    settings = {"prior": "learned", "n_modes": 30, "n_steps": 50, "n_chains": 2, "inference": "sample"}
    probit = GraphClassifier(n_modes=30).fit(X, Y).hyperparameters_
    classifier = GraphClassifier(model="ginzburg_landau", **settings).fit(X, Y)
    assert classifier.posterior_.prior.marginal_variance().mean() == pytest.approx(1)
    told = classifier.hyperparameters_
    scale = told["graph"] / probit["graph"]
    assert 0 < scale < 0.5
    for name in {"linear", "bent"} & set(probit):
        assert told[name] == pytest.approx(scale * probit[name])
    assert told["tau"] == pytest.approx(probit["tau"])


def test_labeled_rows_keep_what_their_label_says():
    """However many labels there are: the Gaussian alone would have some of them disagree with their label."""
    digits = load_digits()
    pair = np.isin(digits.target, (3, 8))
    features, truth = digits.data[pair][:150], digits.target[pair][:150]
    y = np.where(np.arange(150) < 60, truth, -1)
    settings = {"prior": "matern", "tau": 0.3, "model": "level_set", "gamma": 1.0}
    classifier = GraphClassifier(**SETTINGS | settings).fit(features, y)
    classifier.partial_fit_labels([60], [truth[60]])
    labeled = classifier.labels_.nodes
    quick = classifier.posterior_.label_mean(labeled)
    right = classifier.draw().posterior_.label_mean(labeled)
    assert np.abs(quick - right).mean() < 0.04
    assert np.abs(quick - right).max() < 0.16


def test_the_fitted_model_decides_not_later_settings():
    classifier = GraphClassifier(**SETTINGS | {"prior": "matern", "tau": 0.3}).fit(X, Y)
    classifier.set_params(model="ginzburg_landau", gamma=5.0)
    classifier.partial_fit_labels(0, Y[KNOWN[0]]).draw()
    assert isinstance(classifier.posterior_.model, Probit)
    assert classifier.posterior_.model.gamma == classifier.hyperparameters_["gamma"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"prior": "learned"},
            "prior is now 'learned', and the graph or its eigenvectors were made for another: call fit",
        ),
        ({"prior": "full"}, "prior is now 'full'"),
        ({"n_neighbors": 7}, "n_neighbors is now 7"),
        ({"prior": "nonsense"}, "prior must be one of learned, matern"),
        ({"n_modes": 0}, "n_modes must be a whole number of at least 2"),
        ({"prior": "approximate", "tau": 0.3}, 'tau makes no difference here: it is for prior="matern"'),
        ({"class_shares": {"upper": 0.5}}, "class_shares lacks 'lower'"),
    ],
)
def test_relearning_checks_settings_as_fit_does(fitted, settings, message):
    classifier = copy(fitted).set_params(**settings)
    with pytest.raises(ValueError, match=message):
        classifier.relearn()
    assert classifier.posterior_ is fitted.posterior_


def test_relearning_takes_settings_that_the_graph_does_not_depend_on(fitted):
    settings = {"tau": 0.3, "inference": "ep"}
    found = deepcopy(fitted).set_params(**settings).relearn().label_distributions_
    expected = GraphClassifier(**SETTINGS | settings).fit(X, Y).label_distributions_
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_wrong_new_labels_are_refused_and_change_nothing(three):
    classifier = deepcopy(three)
    upper = np.flatnonzero(IRIS_Y != 0)
    for nodes, y, message in (
        (0, 7, "7 is none of the classes of fit, 0, 1 and 2"),
        ([len(IRIS)], [1], f"between 0 and {len(IRIS) - 1}"),
        ([1, 2], [1], "2 nodes and 1 classes"),
        ([1, 1], [1, 2], "must differ"),
        (np.intersect1d(upper, three.labels_.nodes), [-1] * 10, "Only one class would stay"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.partial_fit_labels(nodes, y)
    assert np.array_equal(classifier.labels_.nodes, three.labels_.nodes)
    assert np.array_equal(classifier.label_distributions_, three.label_distributions_)
    with pytest.raises(NotFittedError):
        GraphClassifier().partial_fit_labels(0, 1)


# Rankings


def test_the_most_uncertain_rows_are_those_near_even_odds(fitted, three):
    rows = fitted.most_uncertain(len(X))
    assert set(rows) == set(np.setdiff1d(np.arange(len(X)), KNOWN))
    distance = np.abs(fitted.label_distributions_[rows, 1] - 0.5)
    assert np.all(np.diff(distance) >= -1e-12)
    confidence = three.label_distributions_[three.most_uncertain(len(IRIS))].max(axis=1)
    assert np.all(np.diff(confidence) >= -1e-12)
    for n in (0, 1.5, None):
        with pytest.raises(ValueError, match="n must be a whole number"):
            fitted.most_uncertain(n)


def test_a_wrong_label_is_the_most_suspicious(three):
    given = np.flatnonzero(IRIS_Y == 0)[2]
    wrong = IRIS_Y.copy()
    wrong[given] = 2
    found = GraphClassifier().fit(IRIS, wrong).suspicious_labels()
    assert (found.nodes[0], found.y[0], found.likelier[0]) == (given, 2, 0)
    assert found.probability[0] > 0.5
    assert np.all(np.diff(found.probability) <= 0)
    assert len(found.nodes) == 15
    first = GraphClassifier().fit(IRIS, wrong).suspicious_labels(2)
    assert np.array_equal(first.nodes, found.nodes[:2])
    with pytest.raises(ValueError, match="n must be a whole number"):
        three.suspicious_labels(0)


# Tables of every kind


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame, fitted):
    table = frame({f"x{k}": X[:, k] for k in range(4)})
    series = pd.Series(Y) if frame is pd.DataFrame else pl.Series(Y.tolist())
    classifier = GraphClassifier(**SETTINGS).fit(table, series)
    assert classifier.feature_names_in_.tolist() == ["x0", "x1", "x2", "x3"]
    assert np.array_equal(classifier.label_distributions_, fitted.label_distributions_)
    assert np.array_equal(classifier.predict_proba(table), fitted.label_distributions_)


@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
@pytest.mark.parametrize("prior", ["matern", "learned"])
def test_sparse_features_are_projected(kind, prior):
    """Three classes of rows that have their own columns."""
    features = np.maximum(np.random.default_rng(0).normal(size=(60, 30)) - 0.5, 0)
    for k in range(3):
        features[20 * k : 20 * (k + 1), 10 * k : 10 * (k + 1)] += 2
    y = np.full(60, -1)
    y[[0, 1, 20, 21, 58, 59]] = 0, 0, 1, 1, 2, 2
    settings = {"prior": prior, "inference": "ep"}
    classifier = GraphClassifier(n_components=5, scale="none", **settings).fit(kind(features), y)
    assert np.mean(classifier.transduction_ == np.arange(60) // 20) > 0.95
    assert np.array_equal(classifier.predict_proba(kind(features)), classifier.label_distributions_)
    dense = GraphClassifier(n_components=5, **settings).fit(features, y)
    np.testing.assert_allclose(dense.label_distributions_, classifier.label_distributions_, atol=1e-3)
    near = kind(features * 1.01)
    np.testing.assert_allclose(dense.predict_proba(features * 1.01), classifier.predict_proba(near), atol=1e-3)
    unasked = GraphClassifier(**settings).fit(kind(features), y)
    points = unasked.graph_.features.points
    assert points.shape == (60, 30)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    assert np.mean(unasked.transduction_ == np.arange(60) // 20) > 0.95
    assert np.array_equal(unasked.predict_proba(kind(features)), unasked.label_distributions_)


@pytest.mark.filterwarnings("ignore:.* lie in parts of the graph that have no label")
@pytest.mark.parametrize("shape", [(60, 1), (60, 2), (2, 40)])
def test_few_sparse_features_or_rows_are_taken_as_they_are(shape):
    features = np.random.default_rng(0).normal(size=shape)
    features[: shape[0] // 2] += 4
    y = np.full(shape[0], -1)
    y[[0, -1]] = 0, 1
    classifier = GraphClassifier(n_neighbors=min(5, shape[0] - 1)).fit(csr_array(features), y)
    assert np.mean(classifier.transduction_ == (np.arange(shape[0]) >= shape[0] // 2)) > 0.9


def test_a_text_without_known_words_gets_an_unsure_answer():
    """Its row is all zeros: in the graph it lies far from all others, and where features are zero nothing is said."""
    rng = np.random.default_rng(0)
    topic = np.arange(200) // 100
    words = rng.poisson(np.where(np.arange(60) // 30 == topic[:, None], 0.5, 0.05))
    y = np.where(np.arange(200) % 20 == 0, topic, -1)
    classifier = GraphClassifier().fit(csr_array(words), y)
    assert np.mean(classifier.transduction_ == topic) > 0.95
    assert classifier.predict_proba(csr_array((1, 60))).max() < 0.75
    known = classifier.predict_proba(csr_array(words[[1, 150]] * 7))  # a text seven times as long
    assert known.argmax(axis=1).tolist() == [0, 1]


def test_a_graph_is_weights_too(fitted):
    weights = graph.knn(X, n_neighbors=20)
    again = GraphClassifier(**SETTINGS | {"graph": "precomputed"}).fit(weights, Y)
    np.testing.assert_array_equal(again.transduction_, fitted.transduction_)
    np.testing.assert_array_equal(again.predict(weights), again.transduction_)
    assert again.score(weights, again.transduction_) == 1
    with pytest.raises(TypeError, match=r'got a Graph: .*a matrix of weights goes with graph="precomputed"'):
        GraphClassifier().fit(weights, Y)


@pytest.mark.parametrize("form", [lambda A: A, lambda A: A.toarray()], ids=["sparse", "dense"])
def test_precomputed_weights(form, fitted):
    A = graph.knn(X, n_neighbors=20).weights
    classifier = GraphClassifier(graph="precomputed", **SETTINGS).fit(form(A), Y)
    np.testing.assert_allclose(classifier.label_distributions_, fitted.label_distributions_, atol=1e-6)
    new = X[:5] + 0.3  # no row of fit is so close that it would answer
    weights = fitted.graph_.to_new(new)
    np.testing.assert_allclose(classifier.predict_proba(form(weights)), fitted.predict_proba(new), atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix], ids=["dense", "sparse"])
def test_twins_of_precomputed_weights_are_nodes_of_their_own(form):
    """Two hubs with five leaves each: equal rows of weights are no equal rows."""
    A = np.zeros((12, 12))
    A[0, 2:7] = A[1, 7:] = 1
    A[0, 1] = 0.1
    A += A.T
    y = np.full(12, -1)
    y[[2, 3, 4, 7, 8]] = 0, 0, 1, 1, 1
    settings = {"graph": "precomputed", "prior": "matern", "tau": 0.5, "alpha": 1.0, "inference": "ep"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = GraphClassifier(**settings).fit(form(A), y)
        classifier.partial_fit_labels(5, 0)
    told = classifier.label_distributions_
    np.testing.assert_array_equal(told, classifier.posterior_.probability())
    assert classifier.transduction_[[2, 4]].tolist() == [0, 1]
    np.testing.assert_array_equal(classifier.predict_proba(np.array(A)), told)
    order = np.random.default_rng(0).permutation(12)
    other = GraphClassifier(**settings).fit(form(A[order][:, order]), y[order]).label_distributions_
    np.testing.assert_allclose(
        other, GraphClassifier(**settings).fit(form(A), y).label_distributions_[order], atol=1e-6
    )
    one, two, both = (classifier.predict_proba(form(A[rows])) for rows in ([2], [4], [2, 4]))  # new leaves
    np.testing.assert_allclose([one[0], two[0]], both, atol=1e-12)
    np.testing.assert_allclose(one, two, atol=1e-12)
    assert told[4, 0] < one[0, 0] < told[2, 0]


def test_rows_of_precomputed_weights_are_known_in_any_order_and_number():
    W = graph.self_tuning(X, n_neighbors=20).weights
    classifier = GraphClassifier(graph="precomputed", prior="matern", inference="ep").fit(W, Y)
    p = classifier.predict_proba(W)
    np.testing.assert_array_equal(classifier.predict_proba(W[::-1]), p[::-1])
    np.testing.assert_array_equal(classifier.predict_proba(W[5:9]), p[5:9])


def test_precomputed_weights_are_cut_on_both_sides_in_cross_validation():
    A = graph.self_tuning(X, n_neighbors=20).weights
    classifier = GraphClassifier(graph="precomputed", **SETTINGS)
    assert cross_val_score(classifier, A, TRUTH, cv=2).min() > 0.75


def test_pipeline_and_grid_search():
    y = np.where(TRUTH == "upper", 1, 0)
    y[::3] = -1
    pipeline = make_pipeline(StandardScaler(), GraphClassifier(**SETTINGS | {"inference": "ep"}))
    recipes = [graph.knn(n_neighbors=5), graph.knn(n_neighbors=15)]
    search = GridSearchCV(pipeline, {"graphclassifier__graph": recipes}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8  # unlabeled rows do not count
    assert search.best_params_["graphclassifier__graph"] in recipes


def test_the_score_leaves_unlabeled_rows_out(fitted):
    half = np.where(np.arange(200) % 2, TRUTH, None)
    labeled = np.arange(200) % 2 == 1
    assert fitted.score(X, half) == np.mean(fitted.transduction_[labeled] == TRUTH[labeled])
    with pytest.raises(ValueError, match="No row of y has a class"):
        fitted.score(X, np.full(len(X), None))
    other = np.where(np.arange(200) < 50, "other", TRUTH)
    with pytest.warns(UserWarning, match="'other' is none of the classes of fit"):
        assert fitted.score(X, other) == np.mean(fitted.transduction_ == other) < fitted.score(X, TRUTH)


# What is learned, and how draws end


def test_the_default_learns_its_prior(three):
    for classifier in (GraphClassifier(n_neighbors=20).fit(X, Y), three):
        assert {"gamma", "tau", "alpha", "constant"} <= set(classifier.hyperparameters_)
        assert all(factor > 1 for factor in classifier.hyperparameter_spread_.values())
        assert "tau" in classifier.hyperparameter_spread_
        assert isinstance(classifier.posterior_, Mixture)
        assert classifier.n_iter_ > 1


def test_a_noise_that_is_given_is_not_learned():
    classifier = GraphClassifier(model="level_set", n_neighbors=20, gamma=0.7).fit(X, Y)
    assert (classifier.hyperparameters_["gamma"], classifier.hyperparameters_["alpha"]) == (0.7, 8.0)
    assert "gamma" not in classifier.hyperparameter_spread_
    assert "tau" in classifier.hyperparameter_spread_


def test_a_prior_without_a_graph_piece_has_none_of_its_numbers():
    """Classes on two sides of a plane that no cluster of the rows has heard of."""
    rows = np.random.default_rng(0).normal(size=(120, 8))
    y = np.where(np.arange(120) < 60, rows[:, 0] > 0, -1)
    classifier = GraphClassifier().fit(rows, y)
    assert "linear" in classifier.hyperparameters_
    assert not {"graph", "tau", "alpha"} & set(classifier.hyperparameters_ | classifier.hyperparameter_spread_)


def test_a_graph_without_weight_is_warned_of():
    """Landmarks so narrow that no row is like another."""
    rows = 1000 * np.random.default_rng(0).normal(size=(60, 3)) + np.where(np.arange(60) < 30, 3000, 0)[:, None]
    y = np.where(np.arange(60) % 30 < 3, np.arange(60) // 30, -1)
    with pytest.warns(
        UserWarning, match="The graph has no weight in the learned prior: the answers are a function"
    ):
        classifier = GraphClassifier(graph="nystrom", width=1.0).fit(rows, y)
    assert "graph" not in classifier.hyperparameters_


def test_the_noise_that_was_given_is_told_in_the_units_of_its_giver():
    """The learned prior is in units of the noise: all of u, times 0.2, is told."""
    classifier = GraphClassifier(gamma=0.2, n_neighbors=20).fit(X, Y)
    labels = classifier.labels_
    believed = replace(Hyperprior(), graph=LogNormal(5.0, 1.0))
    probit, columns = Probit(labels.nodes, labels.y), classifier._seen.columns
    found = learn(classifier.spectrum_, probit, features=columns, hyperprior=believed).hyperparameters
    assert (found.gamma, found.graph) == pytest.approx((1.0, 5.0))
    scaled = found._replace(gamma=0.2, graph=1.0, linear=0.2 * found.linear)._asdict()
    assert classifier.hyperparameters_ == pytest.approx({name: value for name, value in scaled.items() if value})
    assert not {"gamma", "graph"} & set(classifier.hyperparameter_spread_)


def test_the_same_seed_gives_the_same_answer(fitted, three):
    again = clone(fitted).fit(X, Y)
    other = clone(fitted).set_params(random_state=1).fit(X, Y)
    assert np.array_equal(again.label_distributions_, fitted.label_distributions_)
    assert not np.array_equal(other.label_distributions_, fitted.label_distributions_)
    np.testing.assert_allclose(other.label_distributions_, fitted.label_distributions_, atol=0.15)
    assert np.array_equal(clone(three).fit(IRIS, IRIS_Y).label_distributions_, three.label_distributions_)


def test_hard_posteriors_go_to_the_models_own_sampler(monkeypatch):
    called = []

    def record(prior, model, sampler=None, **settings):
        called.append(settings)
        return sample_independently(prior, Probit([0, 5], [1.0, -1.0], gamma=1.0), n_steps=500)

    monkeypatch.setattr("graphuq.inference.run.sample", record)
    monkeypatch.setattr("graphuq.estimator.beliefs.sample", record)
    GraphClassifier(**SETTINGS).fit(X, Y)
    assert not called
    GraphClassifier(**SETTINGS | {"inference": "sample"}).fit(X, Y)
    GraphClassifier(**SETTINGS | {"gamma": 0.001}).fit(X, TRUTH[np.random.default_rng(0).permutation(200)])
    assert ["stop" in settings for settings in called] == [False, True]


def test_draws_that_end_too_soon_are_no_secret(monkeypatch):
    monkeypatch.setattr("graphuq.inference.run.ENOUGH", EffectiveSize(target=1e9))
    monkeypatch.setattr("graphuq.inference.run.sample", sample_without_compiling)
    with pytest.warns(ConvergenceWarning, match=r"ended before .* Raise time_limit \(0.001 seconds\)"):
        GraphClassifier(**SETTINGS | {"time_limit": 1e-3, "n_steps": 50}).fit(X, Y)


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"graph": "near"}, "graph must be one of knn, .*, or a function of X that makes a graph, got 'near'"),
        ({"prior": "flat"}, "prior must be one of"),
        ({"model": "logit"}, "model must be one of probit"),
        ({"inference": "guess"}, "inference must be one of auto, ep, sample, got"),
        ({"graph": "gaussian"}, "width must be given for gaussian weights"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1"),
        ({"n_modes": 1}, "n_modes must be a whole number of at least 2, got 1"),
        ({"n_modes": None}, "n_modes must be a whole number"),
        ({"gamma": "a"}, "gamma must be a finite number above 0, got .a."),
        ({"time_limit": None}, "time_limit must be a number above 0, of seconds, got None"),
        ({"time_limit": 0}, "time_limit must be a number above 0, of seconds"),
        ({"gamma": -1.0}, "gamma must be a finite number above 0, got -1.0"),
        ({"tau": np.inf}, "tau must be a finite number above 0"),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_that_do_not_exist(settings, message):
    with pytest.raises(ValueError, match=message):
        GraphClassifier(**settings).fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(200, None), "No row is labeled"),
        (np.where(np.arange(200) < 5, 3, -1), "Only one class, 3, is labeled"),
        (np.array(["a", 1, *[None] * 198], dtype=object), "text in some rows and numbers in others"),
        (np.linspace(0, 1.3, 200), "continuous"),
        (np.zeros(199), "inconsistent numbers of samples"),
    ],
    ids=["none", "one class", "mixed", "amounts", "too few"],
)
def test_columns_that_are_no_labels(y, message):
    with pytest.raises(ValueError, match=message):
        GraphClassifier().fit(X, y)


def test_zeros_that_may_stand_for_unlabeled_are_no_secret():
    y = np.zeros(200, dtype=int)
    y[KNOWN] = np.where(TRUTH[KNOWN] == "upper", 1, -1)
    with pytest.warns(UserWarning, match="If 0 marks the unlabeled rows instead"):
        GraphClassifier(prior="matern", inference="ep", gamma=0.5).fit(X, y)


def test_a_fit_that_fails_leaves_nothing_that_answers():
    classifier = GraphClassifier(**SETTINGS).fit(X, Y)
    with pytest.raises(ValueError, match="Only one class"):
        classifier.fit(X, np.where(Y == "upper", Y, None))
    with pytest.raises(NotFittedError):
        classifier.predict(X)


def test_before_fit():
    for ask in ("predict", "predict_proba", "uncertainty", "locate"):
        with pytest.raises(NotFittedError):
            getattr(GraphClassifier(), ask)(X)
    for ask in ("draw", "most_uncertain", "suspicious_labels"):
        with pytest.raises(NotFittedError):
            getattr(GraphClassifier(), ask)()
    for name in ("label_distributions_", "label_errors_", "transduction_", "n_iter_"):
        assert not hasattr(GraphClassifier(), name)


def test_a_graph_in_pieces_is_refused_by_the_papers_priors():
    apart = np.concatenate([X, X + 100])
    y = np.concatenate([Y, Y])
    with pytest.raises(ValueError, match="connected components"):
        GraphClassifier(**SETTINGS | {"prior": "project"}).fit(apart, y)
    classifier = GraphClassifier(**SETTINGS | {"inference": "ep"}).fit(apart, y)
    assert np.mean(classifier.transduction_ == np.concatenate([TRUTH, TRUTH])) > 0.8


def test_numbers_beyond_reason_are_refused():
    for name in ("gamma", "tau", "alpha", "epsilon"):
        with pytest.raises(ValueError, match=f"{name} must lie between"):
            GraphClassifier(**{name: 1e300}).fit(X, Y)
    weights = graph.knn(X, n_neighbors=20).weights
    with pytest.raises(ValueError, match="sum is infinite"):
        GraphClassifier(graph="precomputed").fit(weights * 1e308, Y)


def test_rows_that_no_label_reaches_are_no_secret():
    apart = np.concatenate([X, X[:30] + 1000.0])  # taken as they are, or they would be drawn near
    y = np.concatenate([Y, np.full(30, None)])
    with pytest.warns(UserWarning, match="30 rows lie in parts"):
        found = GraphClassifier(prior="matern", tau=0.3, scale="none").fit(apart, y)
    np.testing.assert_allclose(found.label_distributions_[200:], 0.5, atol=1e-6)
    assert found.posterior_.diagnostics().converged


@pytest.mark.parametrize("graph", ["knn", "cosine"])
def test_counts_of_words_need_no_dense_copy(graph):
    rng = np.random.default_rng(0)
    topic = np.arange(120) % 2
    words = rng.poisson(0.05 + 0.4 * ((np.arange(200) < 100) == topic[:, None]), (120, 200))
    y = np.where(np.arange(120) < 12, topic, -1)
    fitted = GraphClassifier(graph=graph).fit(csr_matrix(words), y)
    assert fitted.score(csr_matrix(words), topic) > 0.95
    assert fitted.score(csr_matrix(words[:7]), topic[:7]) == 1
    new = rng.poisson(0.05 + 0.4 * ((np.arange(200) < 100) == topic[:20, None]), (20, 200))
    np.testing.assert_array_equal(fitted.predict(csr_matrix(new)), topic[:20])


@pytest.mark.filterwarnings("ignore:The graph has no weight")
def test_units_that_differ_are_spoken_of_where_distances_count():
    rng = np.random.default_rng(0)
    X, y = (
        np.column_stack([rng.random(60), 100 * rng.random(60)]),
        np.where(np.arange(60) < 20, np.arange(60) % 2, -1),
    )
    with pytest.warns(UserWarning, match=r"differ in range by a factor of \d+: .* robust units"):
        found = GraphClassifier().fit(X, y)
    with pytest.warns(UserWarning, match=r'differ in range by a factor of \d+, .* scale="robust"'):
        GraphClassifier(graph="gaussian", width=1.0).fit(X, y)
    assert "by a factor of 1e+20" in unlike_columns(np.array([[0, 0], [1, 1e20]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The graph has no weight")  # labels at random
        GraphClassifier().fit(StandardScaler().fit_transform(X), y)
        asked = GraphClassifier(scale="robust").fit(X, y)
        other = GraphClassifier(scale="none").fit(X, y)
        scaled = GraphClassifier(scale="none").fit(in_units(X, units_of(X)), y)
        GraphClassifier(graph="cosine").fit(X, y)
        constant = np.column_stack([X[:, 0], np.full(60, 1e6)])
        GraphClassifier().fit(constant, y)
    new = X[:9] + np.array([0.01, 0.5])
    placed = scaled.graph_.place(in_units(new, units_of(X))).weights
    for each in (found, asked):
        np.testing.assert_allclose(each.graph_.weights.toarray(), scaled.graph_.weights.toarray(), atol=1e-9)
        np.testing.assert_allclose(each.graph_.place(new).weights.toarray(), placed.toarray(), atol=1e-9)
        np.testing.assert_array_equal(each.label_distributions_, asked.label_distributions_)
    assert np.abs(other.graph_.weights - scaled.graph_.weights).max() > 0.1


@pytest.mark.parametrize("graph", ["knn", "self_tuning"])
@pytest.mark.parametrize("code", [99.0, 9999.0, 999999.0])
@pytest.mark.parametrize("shell", [False, True])
def test_a_mistyped_cell_does_not_matter(graph, code, shell):
    """Moons, one cell of which is wrong; at a shell columns have deviation 1, which that cell makes."""
    X, truth = make_moons(400, noise=0.1, random_state=0)
    X = np.column_stack([X, np.ones(400)])
    X[-1, 0] = code
    y = np.where(np.arange(400) < 30, truth, -1)
    if shell:
        found = GraphClassifier(graph=graph, scale="robust").fit(StandardScaler().fit_transform(X), y)
    else:
        with pytest.warns(UserWarning, match="robust units"):
            found = GraphClassifier(graph=graph).fit(X, y)
    rest = np.arange(30, 399)
    assert calibration.log_loss(found.label_distributions_[rest], truth[rest]) < 0.15


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("prior", [{"prior": "matern", "inference": "ep"}, {}], ids=["matern", "learned"])
@pytest.mark.parametrize("weights", [{"graph": "cosine"}, {"graph": "nystrom", "width": 1.0, "scale": "none"}])
def test_a_row_that_comes_again_with_rounding_has_the_answer_it_had(weights, prior):
    fitted = GraphClassifier(**weights, **prior).fit(IRIS, IRIS_Y)
    again = fitted.predict_proba(IRIS * (1 + 1e-12))
    estimated = weights["graph"] == "nystrom" and "prior" in prior  # its smallest modes, from landmarks alone
    np.testing.assert_allclose(again, fitted.label_distributions_, atol=0.01 if estimated else 1e-6)


def test_columns_of_any_name_are_features():
    """Also those by whose names an AnnData object is known."""
    X, y = make_moons(40, noise=0.1, random_state=0)
    frame = pd.DataFrame(X, columns=["X", "obs"])
    assert GraphClassifier(n_modes=20).fit(frame, np.where(np.arange(40) < 10, y, -1)).n_features_in_ == 2


def test_rows_in_another_order_than_their_classes_are_warned_of():
    X, y = make_moons(40, noise=0.1, random_state=0)
    rows = pd.Index([f"r{k}" for k in range(40)])
    frame, known = pd.DataFrame(X, index=rows), pd.Series(np.where(np.arange(40) < 10, y, -1), index=rows)
    quick = GraphClassifier(n_modes=20)
    with pytest.warns(UserWarning, match=r"the same index in different orders.*y\.loc\[X\.index\]"):
        quick.fit(frame, known[::-1])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="X and y")
        for each in (known, known[::-1].loc[frame.index], known.reset_index(drop=True), known.tolist()):
            quick.fit(frame, each)


def test_rows_in_another_order_than_the_truth_are_warned_of():
    X, y = make_moons(40, noise=0.1, random_state=0)
    frame, truth = pd.DataFrame(X), pd.Series(y)
    fitted = GraphClassifier(n_modes=20).fit(frame, np.where(np.arange(40) < 10, y, -1))
    with pytest.warns(UserWarning, match="the same index in different orders"):
        fitted.score(frame, truth[::-1])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="X and y")
        assert fitted.score(frame[::-1], truth[::-1]) == fitted.score(frame, truth)
