"""The calls in progress in; an error out where one of them, of scikit-learn, counts unlabeled rows as a class."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import walk_stack
from types import FrameType
from typing import Any

import numpy as np

from graphuq.classes import holds_mark

# What takes every value of y for a class, and numbers them or learns from their numbers: -1 too. All else passes y on.
COUNTING = (
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.model_selection._validation.cross_val_predict",
    "sklearn.multiclass",
    "sklearn.multioutput._BaseChain",
)


def refuse_wrappers() -> None:
    """An error where a wrapper has taken the mark of unlabeled rows for a class: its answers would be wrong.

    What reaches `fit` does not tell: the classes have other numbers there, and with several jobs the call of the wrapper
    is in another process. So this is asked where a wrapper copies the classifier, and where it asks a fitted one.
    """
    told = [_told(frame) for frame, _ in walk_stack(None) if _counts(frame)]
    if told:
        raise TypeError(
            f"GraphClassifier is inside of {told[-1]}, which counts the mark of unlabeled rows as a class: use "
            "GraphClassifier without it, or give it labeled rows only."
        )


def _counts(frame: FrameType) -> bool:
    return _call(frame).startswith(COUNTING) and any(map(holds_mark, _classes_in(frame.f_locals)))


def _call(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def _told(frame: FrameType) -> str:
    """What the call is of, as a user wrote it."""
    return type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else _call(frame)


def _classes_in(names: dict[str, Any]) -> Iterator[Any]:
    """The classes that a call knows, by the names scikit-learn has for them."""
    for owner in ("self", "le"):
        yield getattr(names.get(owner), "classes_", None)
    yield names.get("classes")
    if isinstance(names.get("Y"), np.ndarray):  # of a chain; one versus rest has codes in a sparse matrix
        yield names["Y"]
