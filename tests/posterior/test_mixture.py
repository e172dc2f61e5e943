"""A mixture of draws, and the one in closed form that it was drawn from."""

from dataclasses import replace

import numpy as np
import pytest

from graphuq import archive
from graphuq.posterior import GaussianPosterior, Mixture, load
from graphuq.posterior.archive import FORMAT, WHOLE, pack
from tests.posterior.problems import GAMMA, NODES, WEIGHTS, Y, posterior

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


def test_a_file_of_before_is_read(tmp_path):
    """It held what was drawn alone."""
    facts, arrays = pack(drawn(2))
    del facts[WHOLE]
    arrays = {name: each for name, each in arrays.items() if not name.startswith(WHOLE)}
    archive.write(tmp_path / "p.npz", FORMAT, facts, arrays)
    found = load(tmp_path / "p.npz")
    assert found.drawn_from is None
    np.testing.assert_array_equal(found.probability(), drawn(2).probability())
