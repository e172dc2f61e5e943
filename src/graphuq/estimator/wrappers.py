"""The call stack in; an error out if a scikit-learn wrapper on it treats unlabeled rows as a class."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import walk_stack
from typing import Any

import numpy as np

from graphuq.classes import holds_mark

# Wrappers that treat every value of y, including -1, as a class. All others pass y on unchanged.
COUNTING = (
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.model_selection._validation.cross_val_predict",
    "sklearn.multiclass",
    "sklearn.multioutput._BaseChain",
)


def refuse_wrappers() -> None:
    """Raise an error if a wrapper treats the mark of unlabeled rows as a class, which makes predictions wrong.

    `fit` cannot detect this: the wrapper has renumbered the classes and, with several jobs, runs in another
    process. So the check is made when a wrapper clones the classifier and when it calls a fitted one.
    """
    wrapper = None  # the outermost, as a user writes it
    for frame, _ in walk_stack(None):
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        if not name.startswith(COUNTING):
            continue  # its variables must not be read: until Python 3.13 that keeps them alive
        variables = frame.f_locals
        if any(map(holds_mark, _classes_in(variables))):
            wrapper = type(variables["self"]).__name__ if "self" in variables else name
    if wrapper is not None:
        raise TypeError(
            f"GraphClassifier is inside of {wrapper}, which counts the mark of unlabeled rows as a class: use "
            "GraphClassifier without it, or give it labeled rows only."
        )


def _classes_in(variables: dict[str, Any]) -> Iterator[Any]:
    """The classes known to a call, under the variable names that scikit-learn uses."""
    for owner in ("self", "le"):
        yield getattr(variables.get(owner), "classes_", None)
    yield variables.get("classes")
    if isinstance(variables.get("Y"), np.ndarray):  # a classifier chain; one-vs-rest has codes in a sparse matrix
        yield variables["Y"]
