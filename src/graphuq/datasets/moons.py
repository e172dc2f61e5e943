"""A number of nodes and a noise level in; two noisy half circles in many dimensions out."""

from __future__ import annotations

import numpy as np

from graphuq._expect import expect_generator, expect_number, expect_whole

from .dataset import Dataset


def two_moons(n_nodes: int = 2000, *, n_features: int = 100, noise: float = 0.06, seed: int = 0) -> Dataset:
    """Two interleaved half circles of radius 1, with Gaussian noise in every dimension (Sec. 5.1).

    ``x = (cos t, sin t, 0, ...) + noise xi`` for label +1 and
    ``x = (1 - cos t, 0.5 - sin t, 0, ...) + noise xi`` for label -1, with t uniform on [0, pi]
    and xi standard normal. The upper moon comes first and, if n_nodes is odd, has one node more.
    """
    expect_whole(n_nodes, "n_nodes", least=2)
    expect_whole(n_features, "n_features", least=2)
    expect_number(noise, "noise", zero=True)
    rng = expect_generator(seed)
    t = rng.uniform(0, np.pi, n_nodes)
    y = np.where(np.arange(n_nodes) < (n_nodes + 1) // 2, 1, -1)
    X = noise * rng.standard_normal((n_nodes, n_features))
    X[:, 0] += np.where(y > 0, np.cos(t), 1 - np.cos(t))
    X[:, 1] += np.where(y > 0, np.sin(t), 0.5 - np.sin(t))
    return Dataset(
        X=X,
        y=y,
        class_names={1: "upper moon", -1: "lower moon"},
        source="Synthetic, after Bühler and Hein (2009), Spectral clustering based on the graph p-Laplacian.",
    )
