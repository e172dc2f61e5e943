"""A mixture of draws, and the one in closed form that it was drawn from."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from graphuq import archive
from graphuq import prior as priors
from graphuq.posterior import GaussianPosterior, Mixture, load, mixture
from graphuq.posterior.archive import FORMAT, SOURCES
from graphuq.prior import GaussianPrior
from tests.oracles import random_spectrum
from tests.posterior.problems import GAMMA, NODES, WEIGHTS, Y, model, posterior

NEW_NODES = np.append(NODES, 28)


def whole(n_classes, prior="full"):
    """Of three components, the lightest of which nobody draws."""
    light = posterior("gaussian", n_classes, prior, 3 * GAMMA)
    heavy = posterior("mixture of gaussians", n_classes, prior)
    return Mixture((*heavy.components, light), np.append(0.95 * WEIGHTS, 0.05), 0.9)


def drawn(n_classes, prior="full"):
    """At another temperature than before."""
    draws = posterior("mixture of draws", n_classes, prior)
    return replace(draws, temperature=0.7, drawn_from=whole(n_classes, prior))


def assert_same(found, expected):
    assert found.temperature == expected.temperature
    assert all(isinstance(each, GaussianPosterior) for each in found.components)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)
    np.testing.assert_allclose(found.probability(), expected.probability(), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_other_labels_of_draws_are_those_of_what_they_were_drawn_from(n_classes):
    y = np.append(Y[n_classes], 1)
    found = drawn(n_classes).with_labels(NEW_NODES, y)
    assert_same(found, replace(whole(n_classes), temperature=0.7).with_labels(NEW_NODES, y))
    assert len(found.components) == 3
    assert n_classes == 3 or found.temperature == 0.7  # of three classes the labels tell it anew


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_that_come_and_go_leave_no_trace(n_classes, monkeypatch):
    """Also if most components were left out in between, and if a label is only stated again."""
    monkeypatch.setattr(mixture, "MOST_SITES", 0)
    monkeypatch.setattr(mixture, "FEWEST_COMPONENTS", 1)
    before, y = whole(n_classes), Y[n_classes]
    order = np.argsort(-NODES)
    stated = before.with_labels(NODES[order], y[order])
    between = before.with_labels(NEW_NODES, np.append(y, 1))
    after = between.with_labels(NODES[1:], y[1:]).with_labels(NODES, y)
    assert len(between.components) == 1
    for found in (stated, after):
        assert len(found.components) == 3
        np.testing.assert_array_equal(found.probability(), before.probability())


def test_no_draw_is_taken_twice_while_there_are_others():
    """Components of one law have draws of their own; of a component with fewer draws than are asked for, all are used."""
    one = posterior("gaussian", 2, "full")
    assert len(np.unique(Mixture((one, one), np.array([0.5, 0.5])).latent([3]))) == 1000
    few = posterior("draws", 2, "full")
    _, times = np.unique(Mixture((few,), np.ones(1)).latent(NODES)[0], axis=0, return_counts=True)
    distinct = len(np.unique(few.latent(NODES).reshape(-1, len(NODES)), axis=0))
    assert len(times) == distinct


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_arviz_leaves_out_labels_of_a_mixture_of_draws(n_classes):
    """Each draw has the likelihood of the component that it is from, and leave-one-out is that of all."""
    import arviz as az

    mixed = posterior("mixture of draws", n_classes, "full", 1.5)
    data = mixed.to_arviz(NODES)
    u, found = data.posterior["u"].values[0], data.log_likelihood["y"].values[0]
    said = [np.array([each.model.log_likelihood(row) for row in jnp.asarray(u)]) for each in mixed.components]
    own = [np.isclose(found, each, rtol=1e-3, atol=1e-4).all(axis=1) for each in said]
    np.testing.assert_array_equal(own[0], ~own[1])
    assert abs(own[0].mean() - WEIGHTS[0]) < 5 * np.sqrt(WEIGHTS.prod() / 1000)
    left_out = az.loo(data, pointwise=True)
    pointwise = np.asarray(getattr(left_out, "elpd_i", getattr(left_out, "loo_i", None)))
    expected = np.log(mixed.left_out()[np.arange(len(NODES)), Y[n_classes]])
    np.testing.assert_allclose(pointwise, expected, atol=0.05)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_draws_of_nothing_known_are_fitted_anew(n_classes):
    y = np.append(Y[n_classes], 1)
    exact, draws = (posterior(f"mixture of {each}", n_classes, "full") for each in ("gaussians", "draws"))
    assert_same(draws.closed(), exact)
    assert_same(draws.with_labels(NEW_NODES, y), exact.with_labels(NEW_NODES, y))


@pytest.mark.parametrize("prior", ["full", "project", "approximate"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_was_drawn_from_is_kept_in_the_file(n_classes, prior, tmp_path):
    saved = drawn(n_classes, prior)
    saved.save(tmp_path / "p.npz")
    found = load(tmp_path / "p.npz")
    np.testing.assert_array_equal(found.probability(), saved.probability())
    assert found.temperature == 0.7
    assert_same(found.drawn_from, saved.drawn_from)
    y = np.append(Y[n_classes], 1)
    assert_same(found.with_labels(NEW_NODES, y), saved.with_labels(NEW_NODES, y))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_labels_of_before_are_there_again_after_loading(n_classes, tmp_path, monkeypatch):
    """With the components that were left out when labels changed; also of draws of the changed ones."""
    monkeypatch.setattr(mixture, "MOST_SITES", 0)
    monkeypatch.setattr(mixture, "FEWEST_COMPONENTS", 1)
    before, y = whole(n_classes), Y[n_classes]
    changed = before.with_labels(NEW_NODES, np.append(y, 1))
    draws = posterior("mixture of draws", n_classes, "full")
    for name, each in {"changed": changed, "drawn": replace(draws, drawn_from=changed)}.items():
        each.save(tmp_path / f"{name}.npz")
        found = load(tmp_path / f"{name}.npz").with_labels(NODES, y)
        assert len(found.components) == 3
        assert_same(found, before)


def test_a_file_of_before_is_read(tmp_path):
    """It held what was drawn alone."""
    drawn(2).save(tmp_path / "p.npz")
    facts, arrays = archive.read(tmp_path / "p.npz", FORMAT, "a posterior")
    part = SOURCES["drawn_from"]
    del facts[part]
    arrays = {name: each for name, each in arrays.items() if not name.startswith(part)}
    archive.write(tmp_path / "p.npz", FORMAT, facts, arrays)
    found = load(tmp_path / "p.npz")
    assert found.drawn_from is None
    np.testing.assert_array_equal(found.probability(), drawn(2).probability())


@pytest.mark.parametrize("class_weights", [None, [0.4, 1.5, 1.1]])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_errors_are_those_of_adjusted_probabilities_at_worst(temperature, class_weights):
    """Against finite differences: each probability off by its error, in the direction that does most harm."""
    bare = posterior("mixture of draws", 3, "full")
    classes = bare.classes(NODES)
    assert (classes.error > 0).all()
    given = None if class_weights is None else np.array(class_weights)
    adjusted = replace(bare, temperature=temperature, class_weights=given)
    step = 1e-6
    moved = [
        adjusted.adjusted(classes.probability + step * (np.arange(3) == k))
        - adjusted.adjusted(classes.probability - step * (np.arange(3) == k))
        for k in range(3)
    ]
    worst = np.einsum("ljk,jl->jk", np.abs(moved) / (2 * step), classes.error)
    if temperature == 1 and given is None:
        worst = classes.error
    np.testing.assert_allclose(adjusted.classes(NODES).error, np.minimum(worst, 1), rtol=1e-4)


def test_weights_are_numbers_whatever_holds_them():
    """A weight may also be 0: its component changes nothing, without a warning."""
    part, other = (posterior("gaussian", 2, "full", gamma) for gamma in (0.7, 1.5))
    listed, plain = Mixture((part, other), [1.0, 0.0]), Mixture((part,), np.ones(1))
    for name in ("left_out", "probability"):
        np.testing.assert_allclose(getattr(listed, name)(), getattr(plain, name)(), rtol=1e-12)
    assert listed.with_labels(NEW_NODES, np.append(Y[2], 1)).weights.tolist() == [1.0]


@pytest.mark.parametrize("n_nodes", [30, 31])
def test_components_on_several_graphs_are_in_no_file(n_nodes, tmp_path):
    """Their bases are not one: each of them can be saved by itself."""
    other = priors.full(random_spectrum(n_nodes, seed=7))
    one, two = posterior("gaussian", 2, "full"), GaussianPosterior.of(other, model(2))
    with pytest.raises(ValueError, match="must be on one graph"):
        Mixture((one, two), WEIGHTS).save(tmp_path / "m.npz")
    assert not list(tmp_path.iterdir())


def test_columns_of_components_that_hardly_overlap_are_all_in_the_file(tmp_path):
    """As of features alone, which come first, and of a graph alone, whose columns come after and are more."""
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(20, 12))
    columns = [(0, 4), (3, 12), (0, 12), (3, 5)]
    for chosen in ((0, 1), (1, 0), (3, 0, 1), (0, 3), (2, 0), (1, 2, 0)):
        parts = tuple(
            GaussianPosterior.of(
                GaussianPrior(basis[:, a:b], rng.random(b - a), first=a), model(2, nodes=NODES % 20)
            )
            for a, b in (columns[i] for i in chosen)
        )
        mixed = Mixture(parts, np.full(len(parts), 1 / len(parts)))
        mixed.save(tmp_path / "m.npz")
        np.testing.assert_allclose(load(tmp_path / "m.npz").probability(), mixed.probability(), atol=1e-12)
