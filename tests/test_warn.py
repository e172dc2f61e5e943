"""Warnings point at the user's line, not at ours."""

import warnings

import numpy as np
import pytest

from graphuq import GraphClassifier, graph, laplacian, prior, sample, spectrum
from graphuq.models import Probit

RNG = np.random.default_rng(0)
APART = np.vstack([RNG.standard_normal((30, 2)), RNG.standard_normal((30, 2)) + 50])
Y = np.where(np.arange(60) < 10, np.arange(60) % 2, -1)  # none of the second piece


def units():
    GraphClassifier(prior="matern", inference="ep").fit(APART * [1, 1000], Y)


def pieces():
    GraphClassifier(graph="precomputed").fit(graph.knn(APART, n_neighbors=5), Y)


def pieces_of_a_prior_given():
    GraphClassifier(prior="matern", inference="ep").fit(APART, Y)


def one_class():
    Probit([0, 1], [1, 1])


def gaps():
    Probit([0, 1], [0, 2])


def not_converged():
    S = spectrum.dense(laplacian.normalized(graph.knn(APART[:30], n_neighbors=5)))
    sample(prior.full(S), Probit([0, 1], [0, 1]), n_steps=4, n_warmup=0, n_chains=2)


@pytest.mark.parametrize("step", [units, pieces, pieces_of_a_prior_given, one_class, gaps, not_converged])
def test_a_warning_is_told_at_the_line_that_called(step):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step()
    assert caught
    assert {each.filename for each in caught} == {__file__}
    first = step.__code__.co_firstlineno
    assert all(
        first < each.lineno <= max(line for *_, line in step.__code__.co_lines() if line) for each in caught
    )
