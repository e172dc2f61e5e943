"""What every loader hands out: features, labels, and what they mean."""

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
        class_names: what each value in y means.
        source: where the data come from, and whom to cite.
        feature_names: one name per column of X, where the columns have names.
        image_shape: (height, width) of the image that one row of X is, where it is one.
        grid_shape: (height, width) of the image whose pixels are the rows of X, where they are.
    """

    X: NDArray[np.floating[Any]]
    y: NDArray[np.int64]
    class_names: Mapping[int, str]
    source: str
    feature_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int] | None = None
    grid_shape: tuple[int, int] | None = None
