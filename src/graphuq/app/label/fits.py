"""Rows and labels in; a classifier that has seen the rows, and one that has learned from the labels, out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.classes import Labels, relabel
from graphuq.estimator import GraphClassifier
from graphuq.seen import Seen, read_rows
from graphuq.settings import check_settings


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
    labels = classifier.labels_
    before = dict(zip(labels.nodes.tolist(), classifier.classes_[labels.y].tolist(), strict=True))
    known = set(classifier.classes_.tolist())
    after = {row: name for row, name in given.items() if name in known}
    if len(set(after.values())) < 2:
        return None
    changed = [row for row in {*before, *after} if before.get(row) != after.get(row)]
    if not changed:
        return classifier
    names = np.array([after.get(row) for row in changed], dtype=object)
    now = relabel(labels, changed, names, n_rows=classifier.graph_.n_nodes)
    posterior: Any = classifier.posterior_
    # Not `partial_fit_labels`: where labels contradict each other that would draw, while someone waits.
    return copy.copy(classifier)._believe(now, posterior.with_labels(now.nodes, now.y))
