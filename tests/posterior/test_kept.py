"""Probabilities of all rows that follow new labels, against all of them computed anew."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from graphuq import datasets, graph, laplacian, models, prior, sample, spectrum
from graphuq.inference.marginals import FEW_LABELS
from graphuq.posterior import GaussianPosterior, Mixture, kept
from graphuq.posterior.kept import refreshed


@pytest.fixture(autouse=True)
def _many_numbers(monkeypatch):
    """Small graphs are computed anew as they are."""
    monkeypatch.setattr(kept, "FEW_NUMBERS", 0)


def mixture(n_classes, temperature=1.0, n_labels=30):
    rng = np.random.default_rng(0)
    y = np.arange(300) % n_classes
    X = 2.0 * rng.standard_normal((n_classes, 5))[y] + rng.standard_normal((300, 5))
    modes = spectrum.leading(laplacian.normalized(graph.knn(X, n_neighbors=8)), n_modes=25)
    nodes = np.arange(n_labels)
    model = models.Probit(nodes, y[nodes], gamma=0.5, n_classes=n_classes)
    parts = tuple(
        GaussianPosterior.of(replace(made, variances=9 * made.variances), model)
        for made in (prior.matern(modes, tau=tau, alpha=2.0) for tau in (0.3, 0.6))
    )
    return Mixture(parts, np.array([0.6, 0.4]), temperature), y


@pytest.mark.parametrize(("n_classes", "temperature"), [(2, 1.0), (3, 1.0), (5, 0.6)])
def test_rows_follow_new_labels(n_classes, temperature):
    posterior, y = mixture(n_classes, temperature)
    probability, error, now = refreshed(posterior)
    np.testing.assert_allclose(probability, posterior.probability(), atol=1e-5 if n_classes > 2 else 1e-10)
    assert not error.any()
    for row in range(30, 42):
        posterior = posterior.with_labels(
            np.append(posterior.model.nodes, row), np.append(posterior.model.y, y[row])
        )
        probability, _, now = refreshed(posterior, now)
        off = np.abs(probability - posterior.probability()).max(axis=1)
        assert off.max() < 0.07
        assert off.mean() < 8e-3


@pytest.mark.parametrize("n_labels", [6, FEW_LABELS, FEW_LABELS + 1])
def test_a_row_among_few_and_among_many_is_the_same(n_labels):
    """A Gaussian of few labels is corrected, however many rows are asked."""
    posterior, y = mixture(2, n_labels=n_labels)
    exact = posterior.probability()
    found, _, now = refreshed(posterior)
    np.testing.assert_allclose(found, exact, atol=1e-10)
    bare = np.mean([ndtr(m / np.sqrt(v + 0.25)) for m, v in (each.moments() for each in posterior.components)], 0)
    if n_labels == 6:
        assert np.abs(bare[:, 0] - exact[:, 1]).max() > 5e-3
    later = posterior.with_labels(np.arange(n_labels + 1), y[: n_labels + 1])
    tolerance = 1e-10 if n_labels < FEW_LABELS else 0.05
    np.testing.assert_allclose(refreshed(later, now)[0], later.probability(), atol=tolerance)


def test_some_rows_follow_as_all_do():
    posterior, y = mixture(5)
    rows = np.array([7, 3, 250, 40])
    *_, now = refreshed(posterior)
    some = tuple(each.at(rows) for each in now)
    later = posterior.with_labels(np.append(posterior.model.nodes, 40), np.append(posterior.model.y, y[40]))
    expected = refreshed(later, now)[0][rows]
    assert np.abs(expected - refreshed(posterior)[0][rows]).max() > 0.01
    np.testing.assert_allclose(refreshed(later, some, rows)[0], expected, atol=1e-6)
    np.testing.assert_allclose(refreshed(posterior, (), rows)[0], refreshed(posterior)[0][rows], atol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_many_labels_at_once_are_followed_by_every_row(monkeypatch, n_classes):
    """Also by more than are refreshed after a single label, and where the mean stays and the variance shrinks."""
    monkeypatch.setattr(kept, "MOST_ROWS", 20)
    first, y = mixture(n_classes)
    *_, then = refreshed(first)
    rows = np.arange(30, 150)
    later = first.with_labels(np.append(first.model.nodes, rows), np.append(first.model.y, y[rows]))
    np.testing.assert_allclose(refreshed(later, then)[0], later.probability(), atol=1e-5)


def test_rows_whose_means_stay_follow_in_time():
    """A label stated over and over: only the count of changes tells that the variances are of old."""
    first, _ = mixture(5)
    *_, then = refreshed(first)
    stale = tuple(each._replace(variance=4 * each.variance) for each in then)
    late = tuple(each._replace(changes=each.changes + 30) for each in stale)
    off = [np.abs(refreshed(first, each)[0] - first.probability()).max(axis=1) for each in (stale, late)]
    assert off[1].mean() < off[0].mean() / 5


def test_variances_that_stay_as_they_were_are_farther_off(monkeypatch):
    """A twin of the first test: means alone do not do."""
    monkeypatch.setattr(kept, "MOST_CHANGES", 60)
    first, y = mixture(2)
    *_, then = refreshed(first)
    rows = np.arange(30, 90)
    later = first.with_labels(np.append(first.model.nodes, rows), np.append(first.model.y, y[rows]))
    exact = later.probability()
    off = []
    for stale in (kept.STALE, np.inf):
        monkeypatch.setattr(kept, "STALE", stale)
        off.append(np.abs(refreshed(later, then)[0] - exact).mean())
    assert off[0] < off[1] / 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_has_no_means_of_its_own_is_asked_as_it_is():
    moons = datasets.two_moons(40, noise=0.1, seed=0)
    modes = spectrum.dense(laplacian.normalized(graph.self_tuning(moons.X, n_neighbors=5)))
    model = models.Probit([0, 39], moons.y[[0, 39]])
    for posterior in (
        sample(prior.project(modes, n_modes=10), model, n_steps=20, n_chains=2, n_warmup=20),
        GaussianPosterior.of(prior.project(modes), model),  # whitened on labels
    ):
        probability, error, now = refreshed(posterior)
        assert np.array_equal(probability, posterior.probability())
        assert np.array_equal(error, posterior.classes().error)
        assert now == ()
