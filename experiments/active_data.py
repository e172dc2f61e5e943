"""A name in; the features and classes of the data that labelling is simulated on out.

python -m experiments.active_data --cache FILE       # all of them in one file, for machines that cannot have them
"""

from __future__ import annotations

import argparse
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import table_data
from graphuq.datasets import DatasetUnavailable, indian_pines, voting_records
from graphuq.files import whole_file

Array = NDArray[np.float64]
Classes = NDArray[np.int64]

# The file that stands in for the packages is named by this variable.
FILE = "GRAPHUQ_ACTIVE"
# Strategies are compared with each other on the first, and the default is reported on the others, of which one was
# looked at while it was chosen.
CHOOSING = ("mnist 35", "penbased", "titanic", "phoneme", "spambase")
REPORTING = (
    "voting",
    "mnist 49",
    "mnist ten",
    "digits",
    "breast cancer",
    "indian pines",
    "banana",
    "pima",
    "magic",
)
LOOKED_AT = "banana"
MOST_ROWS = 2000


@lru_cache(maxsize=32)
def load(name: str) -> tuple[Array, Classes]:
    """Features, shape (n, d), and classes 0 to K - 1."""
    if FILE not in os.environ:
        return make(name)
    path = Path(os.environ[FILE])
    if not path.is_file():
        raise DatasetUnavailable(
            f"There is no file {path}: python -m experiments.active_data --cache FILE makes one."
        )
    with np.load(path, allow_pickle=False) as file:
        if f"{name}/X" not in file.files:
            raise DatasetUnavailable(f"{path} does not hold {name!r}: make it again.")
        return file[f"{name}/X"].astype(np.float64), file[f"{name}/y"].astype(np.int64)


def make(name: str) -> tuple[Array, Classes]:
    """From the packages that hold them."""
    if name == "voting":
        votes = voting_records()
        return np.asarray(votes.X, float), (votes.y > 0).astype(np.int64)
    if name in ("digits", "breast cancer"):
        from sklearn.datasets import load_breast_cancer, load_digits

        X, y = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
        return _scaled(X) if name == "breast cancer" else X, y.astype(np.int64)
    if name == "indian pines":
        scene = indian_pines()
        return _some(*_common(scene.X[scene.y > 0], scene.y[scene.y > 0]))
    if name == "mnist ten":
        return _some(*table_data.load("mnist"))
    return table_data.load(name)


def _some(X: Array, y: Classes) -> tuple[Array, Classes]:
    """So many rows at random."""
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:MOST_ROWS])
    return X[rows], y[rows]


def _common(X: Array, y: Classes) -> tuple[Array, Classes]:
    """The classes that have a hundred rows or more: of rarer ones a sample has a handful."""
    kept = np.flatnonzero(np.bincount(y) >= 100)
    rows = np.isin(y, kept)
    return X[rows], np.searchsorted(kept, y[rows])


def _scaled(X: Array) -> Array:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def main() -> None:
    """Prepare a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="the file to write")
    path = parser.parse_args().cache
    os.environ.pop(FILE, None)
    arrays = {}
    for name in (*CHOOSING, *REPORTING):
        X, arrays[f"{name}/y"] = make(name)
        arrays[f"{name}/X"] = X.astype(np.float32)
    with whole_file(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    print(f"{path}: {len(arrays) // 2} data sets, {path.stat().st_size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
