"""Rows and labels in; a classifier that has seen the rows, and one that has learned from the labels, out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.classes import Labels
from graphuq.estimator import GraphClassifier
from graphuq.estimator.seen import Seen, read_rows
from graphuq.estimator.settings import check_settings


def seen(classifier: GraphClassifier, X: NDArray[np.float64], tell: Callable[[str], None]) -> GraphClassifier:
    """The classifier with a graph of all rows and its eigenpairs, and no labels yet."""
    check_settings(classifier)
    classifier._seen = Seen.of(classifier, read_rows(classifier, X), tell)
    return classifier


def learned(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier:
    """Another classifier of the same graph, its hyper-parameters learned from these labels, of two classes or more."""
    nodes = np.array(sorted(given), dtype=np.int64)
    classes, y = np.unique([given[row] for row in nodes.tolist()], return_inverse=True)
    found = copy.copy(classifier)
    return found._infer(Labels(classes, nodes, y))


def told(classifier: GraphClassifier, given: Mapping[int, str]) -> GraphClassifier | None:
    """The classifier with these labels in the place of its own, as far as they are of classes that it knows.

    None where those are of fewer than two classes.
    """
    before, known = classifier.labels_, classifier.classes_.tolist()
    numbers = {row: known.index(name) for row, name in given.items() if name in known}
    nodes = np.array(sorted(numbers), dtype=np.int64)
    y = np.array([numbers[row] for row in nodes.tolist()])
    if len(np.unique(y)) < 2:
        return None
    if np.array_equal(nodes, before.nodes) and np.array_equal(y, before.y):
        return classifier
    posterior: Any = classifier.posterior_
    # Not `partial_fit_labels`: where labels contradict each other that would draw, while someone waits.
    return copy.copy(classifier)._believe(Labels(before.classes, nodes, y), posterior.with_labels(nodes, y))
