"""Features and labels in; the `Dataset` that every loader returns, with their meaning, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features and true labels of N nodes.

    Attributes:
        X: features, shape (N, d); float64, or float32 where the loader says so.
        y: labels, shape (N,); +1 and -1 for two classes, class ids otherwise.
        class_names: name of the class of each value in y.
        source: origin of the data, and what to cite.
        feature_names: names of the columns of X, if they have any.
        grid_shape: (height, width) if the rows of X are the pixels of one image.
    """

    X: NDArray[np.floating[Any]]
    y: NDArray[np.int64]
    class_names: Mapping[int, str]
    source: str
    feature_names: tuple[str, ...] | None = None
    grid_shape: tuple[int, int] | None = None


def few_labels(
    y: NDArray[np.int64], counts: dict[int, int], *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random nodes, ``counts[label]`` of each class, and their labels."""
    rng = np.random.default_rng(seed)
    nodes = np.concatenate([rng.choice(np.flatnonzero(y == label), n, False) for label, n in counts.items()])
    return nodes, y[nodes]
