"""Rows of features in; which of them are the same row, and whether their classes agree, out."""

from __future__ import annotations

import warnings
from hashlib import blake2b
from typing import Any

import numpy as np

from graphuq.classes import Labels


def fingerprints(X: Any) -> list[bytes]:
    """16 bytes for each row of a dense or CSR matrix, equal for equal rows."""
    if isinstance(X, np.ndarray):
        contents = [row.tobytes() for row in np.ascontiguousarray(X) + 0.0]  # no -0.0
    else:
        X = X.sorted_indices()
        parts = [np.split(each, X.indptr[1:-1]) for each in (X.indices.astype(np.int64), X.data)]
        contents = [where.tobytes() + what.tobytes() for where, what in zip(*parts, strict=True)]
    return [blake2b(content, digest_size=16).digest() for content in contents]


def warn_of_contradictions(rows: list[bytes], labels: Labels) -> None:
    """Say which rows are alike in every feature and labeled differently."""
    first: dict[bytes, tuple[int, float]] = {}
    for i, label in zip(labels.nodes, labels.y, strict=True):
        j, other = first.setdefault(rows[i], (i, label))
        if label != other:
            warnings.warn(
                f"Rows {j} and {i} are the same in every feature but have different classes: the data cannot decide "
                "between rows like these.",
                stacklevel=3,
            )
            return
