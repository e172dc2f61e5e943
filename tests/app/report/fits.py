"""Small fits of every kind, and the content of their reports."""

from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.datasets import make_blobs

from graphuq import GraphClassifier, datasets
from graphuq.app.report.content import TableRows, collect
from graphuq.posterior import GaussianPosterior, Mixture

KINDS = ("draws", "gaussian", "mixture", "mixture of draws")
SETTINGS = {"prior": "matern", "n_neighbors": 20, "gamma": 0.5}


def moons():
    """Two moons and the name of the class of each row."""
    data = datasets.two_moons(200, n_features=4, noise=0.08, seed=0)
    return data.X, np.where(data.y > 0, "upper", "lower").astype(object)


def blobs():
    """Three clouds that overlap, the classes of unequal size."""
    X, y = make_blobs([50, 40, 30], n_features=3, centers=np.eye(3) * 4, cluster_std=1.4, random_state=1)
    return X, np.array(["ash", "birch", "cedar"], dtype=object)[y]


def few(truth, n, seed=0):
    """The classes of so many rows of each, None elsewhere."""
    rng = np.random.default_rng(seed)
    y = np.full(len(truth), None, dtype=object)
    for name in np.unique(truth):
        known = rng.choice(np.flatnonzero(truth == name), n, replace=False)
        y[known] = name
    return y


def fit(n_classes, y=None, **settings):
    X, truth = moons() if n_classes == 2 else blobs()
    return GraphClassifier(**SETTINGS | settings).fit(X, few(truth, 5) if y is None else y)


def drawn(n_classes):
    return fit(n_classes, inference="sample", n_steps=200 if n_classes == 2 else 60, n_chains=4)


def of_kind(kind, base):
    """The same classifier with beliefs of another kind, from one with draws."""
    draws = base.posterior_
    noisier = replace(draws.model, gamma=2 * draws.model.gamma)
    gaussians = [GaussianPosterior.of(draws.prior, model) for model in (draws.model, noisier)]
    beliefs = {
        "draws": draws,
        "gaussian": gaussians[0],
        "mixture": Mixture(tuple(gaussians), np.array([0.7, 0.3])),
        "mixture of draws": Mixture((draws, draws), np.array([0.7, 0.3])),
    }
    return copy(base)._believe(base.labels_, beliefs[kind])


def numbers(classifier, truth):
    """Truth as numbers of the classes."""
    return np.searchsorted(classifier.classes_, truth.astype(str))


def content_of(classifier, **changes):
    X, truth = moons() if len(classifier.classes_) == 2 else blobs()
    rows = {
        "names": [f"row {k}" for k in range(len(X))],
        "columns": ["first", "second"],
        "cells": [[f"{value:.3f}" for value in row[:2]] for row in X],
        "truth": numbers(classifier, truth),
    }
    return collect(classifier, TableRows(**rows | changes), title="A report", settings={"seconds": 1.5})
