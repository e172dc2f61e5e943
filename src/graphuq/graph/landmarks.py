"""Points in; a few representative points (k-means centers) out."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from graphuq.graph.features import Array

_POINTS_PER_CENTER = 50  # a larger sample does not move the centers enough to matter


def kmeans_centers(points: Array, n_centers: int, *, seed: int) -> Array:
    """Centers of a quick k-means on a random sample of the points, shape (n_centers, n_dimensions)."""
    return centers_of_sample(points[kmeans_sample(len(points), n_centers, seed=seed)], n_centers, seed=seed)


def kmeans_sample(n_points: int, n_centers: int, *, seed: int) -> NDArray[np.int64]:
    """Indices of the random sample that k-means is run on."""
    n_sample = min(n_points, _POINTS_PER_CENTER * n_centers)
    return np.random.default_rng(seed).choice(n_points, n_sample, replace=False)


def centers_of_sample(sample: Array, n_centers: int, *, seed: int) -> Array:
    """Centers of a quick k-means on all of these points, shape (n_centers, n_dimensions)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # with fewer distinct points than centers some centers coincide, which does no harm
        warnings.simplefilter("ignore", ConvergenceWarning)
        state = seed % 2**32  # scikit-learn takes no larger seed
        means = KMeans(n_centers, init="random", n_init=1, max_iter=10, random_state=state).fit(sample)
    return means.cluster_centers_
