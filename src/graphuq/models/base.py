"""What a model must offer, what it may offer, and the checks on the labels that every model makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any, NamedTuple, Protocol, cast

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import called, expect_numbers, expect_scale, expect_whole, refuse_masked
from graphuq._warn import warn


class Model(Protocol):
    """A likelihood: Phi(u; y) as a function of u at the nodes it looks at.

    Your own model is a small class with `nodes` and `phi`; make it a dataclass if its noise is to be learned. Write
    `phi` with `jax.numpy`; JAX takes its gradient. A model may offer more, by any of these attributes and methods:

    | offer | what it is | without it |
    |---|---|---|
    | ``n_classes`` | the number of classes K | 2 |
    | ``n_fields`` | columns of u: 1 (its sign is the class) or K (the largest is the class) | 1 |
    | ``y`` | the class of each labeled node, 0 to K - 1 | labels cannot be checked |
    | ``numbers`` | names of its numbers for `GraphClassifier` to report, such as "gamma" | none |
    | ``noise`` | standard deviation of the noise that a label adds to u | 0 |
    | ``mistake_rate`` | probability that a label names another class than that of its node, noise included | 0 |
    | ``sees_all_nodes`` | whether `phi` takes u at every node instead of u[nodes] | False |
    | ``labels_are_real`` | whether the label of a node is u itself rather than its sign | False |
    | ``sites()`` | closed-form moments, for expectation propagation, evidence and learning | `TypeError` |
    | ``walls()`` | a Gaussian cut by planes, for the `Orthant` sampler | `TypeError` |
    | ``log_likelihood(u)`` | the log likelihood of each label, for ArviZ's leave-one-out | missing from `to_arviz` |
    | ``curvature()`` | a bound on the second derivative of Phi, and whether Phi is convex, for `find_mode` | 1, no |
    | ``reduced(B, progress)`` | Phi(B z) as a function of z that is a pytree, where it is faster than `phi`; otherwise None | `phi` |
    | ``reference(B)`` | a Gaussian close to the posterior of z, u = B z, for `Referenced` | that of `sites` |
    | ``default_sampler()`` | the sampler that `sample` uses | `NUTS` |
    | ``hyperprior()`` | the prior of the noise, for `learn` | `TypeError` |
    """

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The labeled nodes."""
        ...

    def phi(self, u: jax.Array) -> jax.Array:
        """Minus the log likelihood, up to a constant; u of shape (n_seen,), or (n_seen, n_fields) if several."""
        ...


class Walls(NamedTuple):
    """A likelihood that depends only on which side of zero a field is on, or which of several fields is the largest.

    Attributes:
        noise: standard deviation of the Gaussian noise that is added to every field first.
        height: what the wrong side costs for each field that is larger than the label's own; infinite forbids it.
        leader_only: whether only the largest field counts, so that all ranks after the first cost the same.
    """

    noise: float
    height: float
    leader_only: bool


class Curvature(NamedTuple):
    """A bound on the second derivatives of Phi where u is of order one, and whether Phi is convex everywhere."""

    bound: float
    convex: bool


# Of each thread its own, which the filters of `warnings` are not.
_MUTED: ContextVar[bool] = ContextVar("muted", default=False)
LEARNED_FIELDS = ("nodes", "y", "gamma")  # that a model must have as fields for its noise to be learned
DEFAULTS: dict[str, Any] = {
    "n_classes": 2,
    "n_fields": 1,
    "numbers": (),
    "noise": 0.0,
    "mistake_rate": 0.0,
    "sees_all_nodes": False,
    "labels_are_real": False,
}
_MISSING = {
    "y": "has no classes y of its labeled nodes, which this needs.",
    "sites": (
        "offers no sites: expectation propagation, and learning from its evidence, need a likelihood of single labeled "
        "values with closed-form moments, as that of Probit is. `sample` does without."
    ),
    "walls": (
        "offers no walls: Orthant needs a Gaussian cut by planes, as the posteriors of Probit and LevelSet are, "
        "which look at signs alone. Use PCN, EllipticalSlice, or NUTS where Phi has a gradient."
    ),
    "reference": (
        "offers no Gaussian close to its posterior: give Referenced a `reference`, such as a Laplace approximation."
    ),
    "hyperprior": "offers no hyperprior, so its noise cannot be learned: choose a prior and give it.",
}


def offer(model: Model, name: str) -> Any:
    """What a model says of itself under this name, or what holds for one that says nothing."""
    return getattr(model, name, DEFAULTS[name])


def offers(model: Model, name: str) -> bool:
    """Whether a model has this to offer."""
    return getattr(model, name, None) is not None


def has_evidence(model: Model) -> bool:
    """Whether its noise can be learned."""
    return offers(model, "sites") and offers(model, "hyperprior")


def ask(model: Model, name: str, *arguments: Any) -> Any:
    """What a model offers under this name; the one `TypeError` for what it does not."""
    if not offers(model, name):
        raise TypeError(f"{type(model).__name__} {_MISSING[name]}")
    found = getattr(model, name)
    return found(*arguments) if callable(found) else found


def curvature(model: Model) -> Curvature:
    """The bound that a model offers, or a guess."""
    return ask(model, "curvature") if offers(model, "curvature") else Curvature(1.0, False)


def labeled(model: Any, nodes: NDArray[np.int64], y: NDArray[np.int64], n_classes: int) -> Model:
    """The model of these labels: from one without, such as ``Probit(gamma=0.2)``, or from a class or function of them.

    A class or function of your own is called with nodes and y, and with `n_classes` too where it takes that.
    """
    is_template = is_dataclass(model) and not isinstance(model, type)
    source: Any = type(model) if is_template else model
    if not callable(source) or (is_template and not hasattr(model, "phi")):
        raise TypeError(
            f"model takes a name, a model such as Probit(gamma=0.2), or a class of one, got {called(model)}."
        )
    settings = {"n_classes": n_classes} if "n_classes" in signature(source).parameters else {}
    made: Any = replace(model, nodes=nodes, y=y, **settings) if is_template else source(nodes, y, **settings)
    if offer(made, "n_classes") != n_classes:
        raise TypeError(
            f"{type(made).__name__} is a model of {offer(made, 'n_classes')} classes, and y has {n_classes}."
        )
    return cast(Model, made)


def expect_model(model: object) -> None:
    """Refuse what is no model, and a model without labels."""
    if isinstance(model, type) or not hasattr(model, "phi"):
        raise TypeError(
            f"model must be a model with labels, such as models.Probit(nodes, y), got {called(model)}."
        )
    if getattr(model, "nodes", None) is None:
        raise TypeError(f"The model has no labels: give it nodes and y, as in {type(model).__name__}(nodes, y).")


def expect_fields(model: Any, *names: str) -> None:
    """Refuse a model that cannot be made anew with other labels, or another noise."""
    if not set(names) <= _own(model):
        raise TypeError(
            f"{type(model).__name__} must be a dataclass with the fields {', '.join(names)}: it is made anew with others of "
            "these where labels are added or the noise is learned. Or choose a prior, and fit all labels at once."
        )


def remade(model: Any, **others: Any) -> Any:
    """The same model with other labels or numbers, of whose labels it was warned before."""
    with warned_before():
        return replace(model, **others)


def with_numbers(model: Any, numbers: dict[str, float]) -> Model:
    """A model of one's own with these numbers, if it is a dataclass or has them already."""
    changes = {name: value for name, value in numbers.items() if name in _own(model)}
    model = remade(model, **changes) if changes else model
    for name, value in numbers.items():
        if getattr(model, name, None) != value:
            raise TypeError(
                f"The file holds {type(model).__name__} with {name} = {value:g}, and the model given has "
                f"{getattr(model, name, None)}: give one with that number, or make it a dataclass that has {name} as a field."
            )
    return cast(Model, model)


def _own(model: Any) -> set[str]:
    """The fields that a model can be made anew with."""
    return {each.name for each in fields(model) if each.init} if is_dataclass(model) else set()


@contextmanager
def warned_before() -> Iterator[None]:
    """Models made inside do not warn of their labels: that was done when these were first read."""
    token = _MUTED.set(True)
    try:
        yield
    finally:
        _MUTED.reset(token)


def is_traced(value: object) -> bool:
    """Whether JAX is differentiating or compiling with respect to a value."""
    return isinstance(value, jax.core.Tracer)


def check_label_model(model: Any) -> None:
    """Doubt the labels and numbers of a frozen model, and keep them as arrays, numbers, and counts of classes.

    A model without labels is left for `labeled` to complete. What JAX traces has no value yet and is not doubted.
    """
    for name in model.numbers:
        if not is_traced(value := getattr(model, name)):
            number = value.item() if isinstance(value, jax.Array) and value.ndim == 0 else value
            object.__setattr__(model, name, expect_scale(number, name))
    if model.nodes is None and model.y is None:
        return
    if model.n_fields is not None and (is_traced(model.nodes) or is_traced(model.y)):
        return
    nodes, y = check_labels(model.nodes, model.y, model.n_classes)
    n_classes = max(2, int(y.max()) + 1) if model.n_classes is None else expect_whole(model.n_classes, "n_classes")
    if y.max() >= n_classes or n_classes < 2:
        raise ValueError(f"A label is {y.max()}, and with n_classes = {n_classes} they go up to {n_classes - 1}.")
    usual = 1 if n_classes == 2 else n_classes
    n_fields = usual if model.n_fields is None else expect_whole(model.n_fields, "n_fields")
    if n_fields not in ((1, 2) if n_classes == 2 else (n_classes,)):
        raise ValueError(
            f"n_fields must be {n_classes}, one for each class, or 1 for two classes, got {n_fields}."
        )
    if model.n_classes is None:
        _warn_of_gaps(y)
    for name, value in (("nodes", nodes), ("y", y), ("n_classes", n_classes), ("n_fields", n_fields)):
        object.__setattr__(model, name, value)


def _warn_of_gaps(y: NDArray[np.int64]) -> None:
    """Classes are counted from 0, and who writes 1 and 2 may mean two of them."""
    found = np.unique(y)
    gaps = np.flatnonzero(found != np.arange(found.size))
    if found.size > 1 and gaps.size and not _MUTED.get():
        warn(
            f"y holds classes up to {found[-1]}, counted from 0, and class {gaps[0]} has no label: {found[-1] + 1:,} classes "
            f"are taken. Give n_classes={found[-1] + 1} if they are meant, and else number classes without gaps, as "
            "np.unique(y, return_inverse=True)[1] does.",
        )


def signs(y: Any) -> Any:
    """The labels -1 and +1 of two classes, as the paper writes them."""
    return 2 * y - 1


def check_labels(
    nodes: ArrayLike, y: ArrayLike, n_classes: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labeled nodes and their classes, 0 to K - 1, each node once; -1 and +1 stand for the classes 0 and 1 of two.

    A node given twice with one label counts once; with two different labels it is refused.
    """
    refuse_masked(nodes, "nodes")
    indices = np.atleast_1d(np.asarray(nodes))
    values = np.atleast_1d(expect_numbers(y, "y"))
    if indices.ndim != 1 or indices.shape != values.shape:
        raise ValueError(
            f"nodes and y must be two lists of one length, got shapes {indices.shape} and {values.shape}."
        )
    if indices.size == 0:
        raise ValueError("No labels: at least one labeled node is needed.")
    if not np.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"nodes must be integers (row numbers), got {indices.dtype}.")
    if indices.min() < 0:
        raise ValueError(f"nodes must be row numbers from 0, got {indices.min()}.")
    wrong = ~((values >= -1) & (values == np.floor(values)) & (values < 2**31))
    if wrong.any():
        raise ValueError(f"Labels must be classes 0, 1, ..., or -1 and +1, got {values[wrong][0]:g}.")
    if values.min() < 0:
        if not np.isin(values, (-1, 1)).all():
            odd = values[~np.isin(values, (-1, 1))][0]
            raise ValueError(f"Labels are either -1 and +1, or classes from 0; got -1 and {odd:g} together.")
        if n_classes not in (None, 2):
            raise ValueError(f"Labels -1 and +1 are of two classes: number {n_classes} classes from 0.")
        values = (values + 1) / 2
    unique, first, inverse = np.unique(indices, return_index=True, return_inverse=True)
    conflict = values != values[first][inverse]
    if conflict.any():
        raise ValueError(f"Node {indices[conflict][0]} is given two different labels: remove one of them.")
    if unique.size < indices.size:
        keep = np.sort(first)
        indices, values = indices[keep], values[keep]
    if np.unique(values).size == 1 and not _MUTED.get():
        warn(
            f"Every label is class {values[0]:.0f}: with one class only, the data cannot say where another one is."
        )
    return indices.astype(np.int64), values.astype(np.int64)
