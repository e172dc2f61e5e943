"""The class that every likelihood inherits from, and the validation of labels that all models share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphuq._expect import called, expect_numbers, expect_scale, expect_whole, put, refuse_masked
from graphuq._warn import warn

if TYPE_CHECKING:
    from graphuq.inference.ep import Gaussian
    from graphuq.inference.sampler import Sampler
    from graphuq.learning.hyperprior import Hyperprior

# Largest gamma or epsilon: fields are of order one, and chains square these numbers in single precision.
LARGEST_NUMBER = 1e15


class Walls(NamedTuple):
    """A likelihood that depends only on the sign of a noisy field, or on the order of several noisy fields.

    Attributes:
        noise: standard deviation of the Gaussian noise added to every field first.
        height: increase of Phi for each field that is larger than the label's own; infinite forbids the crossing.
        leader_only: whether only the largest field matters, so that all ranks after the first cost the same.
        scale: factor of the fields of each label, shape (n_labeled,), or None.
    """

    noise: float
    height: float
    leader_only: bool
    scale: Any = None


class Curvature(NamedTuple):
    """A bound on the second derivatives of Phi for u of order one, and whether Phi is convex everywhere.

    A convex Phi of the labeled nodes is assumed to be a sum over these nodes, as for labels that are independent given u.
    """

    bound: float
    convex: bool


class Model(ABC):
    """A likelihood: Phi(u; y) as a function of u at the nodes that the model sees.

    A custom model inherits from this class and has `nodes` and `phi`; make it a dataclass if its noise is to be
    learned. Write `phi` with `jax.numpy`, so that JAX can differentiate it. All else is optional.

    Attributes:
        nodes: the labeled nodes.
        y: class of each labeled node, 0 to K - 1; without it labels cannot be checked.
        n_classes: number of classes K.
        n_fields: columns of u: 1 (its sign is the class) or K (the largest is the class).
        numbers: names of the parameters that `GraphClassifier` reports, such as "gamma".
        noise: standard deviation of the noise that is added to u before it is labeled.
        mistake_rate: probability that a label differs from the class of its node, noise included.
        weights: the precision of each label relative to the usual 1, or None if all are equally precise.
        sees_all_nodes: whether `phi` takes u at every node instead of u[nodes].
        labels_are_real: whether the label of a node is u itself rather than its sign.
    """

    # `nodes` and `y` have no value here: a dataclass would take it as the default of its field of that name. They and
    # the numbers are `Any`, so that a subclass can define fields or properties, which are None before it has labels.
    nodes: Any
    y: Any
    n_classes: Any = 2
    n_fields: Any = 1
    numbers: tuple[str, ...] = ()
    noise: Any = 0.0
    mistake_rate: Any = 0.0
    weights: Any = None
    sees_all_nodes: bool = False
    labels_are_real: bool = False

    @abstractmethod
    def phi(self, u: jax.Array) -> jax.Array:
        """The negative log likelihood up to a constant; u has shape (n_seen,) or (n_seen, n_fields)."""

    def offers(self, *names: str) -> bool:
        """Whether the model has its own methods, or values, of all these names, such as "sites" and "y"."""
        members = [getattr(self, name, None) for name in names]
        defaults = [getattr(Model, name, None) for name in names]
        return all(getattr(own, "__func__", own) is not base for own, base in zip(members, defaults, strict=True))

    def sites(self) -> Any:
        """Closed-form tilted moments, for expectation propagation, evidence and learning."""
        raise TypeError(
            f"{type(self).__name__} offers no sites: expectation propagation, its evidence and left-out labels need a "
            "likelihood of single labeled values with closed-form moments, as that of Probit is. `sample` does without."
        )

    def hyperprior(self) -> Hyperprior:
        """The prior of the noise, for `learn`."""
        raise TypeError(
            f"{type(self).__name__} offers no hyperprior, so its noise cannot be learned: choose a prior and give it."
        )

    def walls(self) -> Walls:
        """The posterior as a Gaussian cut by planes, for the `Orthant` sampler."""
        raise TypeError(
            f"{type(self).__name__} offers no walls: Orthant needs a Gaussian cut by planes, as the posteriors of Probit and "
            "LevelSet are, which look at signs alone. Use PCN, EllipticalSlice, or NUTS where Phi has a gradient."
        )

    def reference(self, matrix: NDArray[np.float64]) -> Gaussian:
        """A Gaussian close to the posterior of z, u = B z, for `Referenced`: by default from `sites`."""
        if self.offers("sites"):
            return self.sites().fit(matrix).gaussian()
        raise TypeError(
            f"{type(self).__name__} offers no Gaussian close to its posterior: give Referenced a `reference`, such as a "
            "Laplace approximation."
        )

    def reduced(self, B: NDArray[np.floating], progress: bool | None = None) -> Any:
        """``Phi(B z)`` as a pytree function of z if that is faster than through `phi`, else None."""
        return None

    def curvature(self) -> Curvature:
        """A bound on the second derivative of Phi, and whether Phi is convex, for `find_mode`: by default a guess."""
        return Curvature(1.0, False)

    def default_sampler(self) -> Sampler:
        """The sampler that `sample` uses."""
        from graphuq.inference.gradient import NUTS

        return NUTS()

    def log_likelihood(self, u: jax.Array) -> jax.Array:
        """The log likelihood of each label, normalized over labels, shape (n_labeled,), for ArviZ."""
        raise TypeError(f"{type(self).__name__} offers no log_likelihood of each label.")


# A context variable because, unlike the filters of `warnings`, it is local to each thread.
_MUTED: ContextVar[bool] = ContextVar("muted", default=False)
# Weights of labels beyond these would be lost to rounding, or have no effect.
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
LEARNED_FIELDS = ("nodes", "y", "gamma")  # dataclass fields required for learning the noise


def labels_of(model: Any) -> NDArray[np.int64]:
    """The class of each labeled node; `TypeError` if the model does not know it."""
    if getattr(model, "y", None) is None:
        raise TypeError(f"{type(model).__name__} has no classes y of its labeled nodes, which this needs.")
    return np.asarray(model.y)


def labeled(
    model: Any,
    nodes: NDArray[np.int64],
    y: NDArray[np.int64],
    n_classes: int,
    weights: NDArray[np.float64] | None = None,
) -> Model:
    """Attach labels to a model without any, such as ``Probit(gamma=0.2)``, or call a class or function with them.

    A class or function is called with nodes and y, with `n_classes` if it has such a parameter, and with `weights` if
    labels have some.
    """
    is_template = is_dataclass(model) and not isinstance(model, type)
    source: Any = type(model) if is_template else model
    if not callable(source) or (is_template and not hasattr(model, "phi")):
        raise TypeError(
            f"model takes a name, a model such as Probit(gamma=0.2), or a class of one, got {called(model)}."
        )
    parameters = signature(source).parameters
    settings: dict[str, Any] = {"n_classes": n_classes} if "n_classes" in parameters else {}
    if weights is not None:
        if "weights" not in parameters:
            raise TypeError(
                f"{source.__name__} takes no weights of labels: use Probit, or leave out sample_weight."
            )
        settings["weights"] = weights
    made: Any = replace(model, nodes=nodes, y=y, **settings) if is_template else source(nodes, y, **settings)
    expect_model(made)
    if made.n_classes != n_classes:
        raise TypeError(f"{type(made).__name__} is a model of {made.n_classes} classes, and y has {n_classes}.")
    return made


def expect_model(model: object) -> None:
    """Raise `TypeError` unless this is a model with labels."""
    if isinstance(model, type) or not hasattr(model, "phi"):
        raise TypeError(
            f"model must be a model with labels, such as models.Probit(nodes, y), got {called(model)}."
        )
    if not isinstance(model, Model):
        name = type(model).__name__
        raise TypeError(
            f"{name} must inherit from graphuq.models.Model: write class {name}(graphuq.models.Model)."
        )
    if getattr(model, "nodes", None) is None:
        raise TypeError(f"The model has no labels: give it nodes and y, as in {type(model).__name__}(nodes, y).")
    nodes = np.asarray(model.nodes)
    if nodes.ndim != 1 or not nodes.size or nodes.dtype.kind not in "iu" or nodes.min() < 0:
        raise TypeError(
            f"The nodes of {type(model).__name__} must be a list of one or more node numbers from 0, got {nodes.dtype} of the "
            f"shape {nodes.shape}{f' and {nodes.min()}' if nodes.size and nodes.dtype.kind in 'iu' else ''}."
        )


def expect_fields(model: Any, *names: str) -> None:
    """Raise `TypeError` unless the model is a dataclass in which `replace` can change these fields."""
    if not set(names) <= init_fields(model):
        raise TypeError(
            f"{type(model).__name__} must be a dataclass with the fields {', '.join(names)}: it is copied with other values "
            "of these where labels are added or the noise is learned. Or choose a prior, and fit all labels at once."
        )


def remade(model: Any, **others: Any) -> Any:
    """A copy of the model with other labels or parameters, without repeating the warnings about its labels."""
    with warned_before():
        return replace(model, **others)


def relabeled(model: Any, nodes: NDArray[np.int64], y: NDArray[np.int64]) -> Any:
    """A copy of the model with other labels; those that stay keep their weights, and others have the weight 1."""
    if model.weights is None:
        return remade(model, nodes=nodes, y=y)
    known = dict(zip(_pairs(model.nodes, model.y), model.weights, strict=True))
    return remade(model, nodes=nodes, y=y, weights=np.array([known.get(pair, 1.0) for pair in _pairs(nodes, y)]))


def _pairs(nodes: ArrayLike, y: ArrayLike) -> list[tuple[int, int]]:
    """Labels as pairs of node and class; -1 and 0 are the same class."""
    return list(zip(np.asarray(nodes).tolist(), np.maximum(y, 0).tolist(), strict=True))


def init_fields(model: Any) -> set[str]:
    """Names of the dataclass fields that `replace` can change."""
    return {field.name for field in fields(model) if field.init} if is_dataclass(model) else set()


@contextmanager
def warned_before() -> Iterator[None]:
    """Suppress warnings about labels of models created inside: they were issued when the labels were read."""
    token = _MUTED.set(True)
    try:
        yield
    finally:
        _MUTED.reset(token)


def is_traced(value: object) -> bool:
    """Whether a value is a JAX tracer, as during differentiation or compilation."""
    return isinstance(value, jax.core.Tracer)


def check_label_model(model: Any) -> None:
    """Validate the labels and parameters of a frozen model, convert them, and fill in `n_classes` and `n_fields`.

    A model without labels is left for `labeled` to complete. JAX tracers have no value yet and are not checked.
    """
    for name in model.numbers:
        if not is_traced(value := getattr(model, name)):
            number = value.item() if isinstance(value, jax.Array) and value.ndim == 0 else value
            put(model, **{name: expect_scale(number, name, LARGEST_NUMBER)})
    if model.nodes is None and model.y is None:
        return
    if model.n_fields is not None and (is_traced(model.nodes) or is_traced(model.y)):
        return
    nodes, y = check_labels(model.nodes, model.y, model.n_classes)
    n_classes = max(2, int(y.max()) + 1) if model.n_classes is None else expect_whole(model.n_classes, "n_classes")
    if y.max() >= n_classes or n_classes < 2:
        raise ValueError(f"A label is {y.max()}, and with n_classes = {n_classes} they go up to {n_classes - 1}.")
    default = 1 if n_classes == 2 else n_classes
    n_fields = default if model.n_fields is None else expect_whole(model.n_fields, "n_fields")
    if n_fields not in ((1, 2) if n_classes == 2 else (n_classes,)):
        raise ValueError(
            f"n_fields must be {n_classes}, one for each class, or 1 for two classes, got {n_fields}."
        )
    if model.n_classes is None:
        _warn_of_gaps(y)
    if model.weights is not None:
        put(model, weights=_check_weights(model.weights, len(np.atleast_1d(model.nodes)), len(nodes)))
    put(model, nodes=nodes, y=y, n_classes=n_classes, n_fields=n_fields)


def _check_weights(weights: ArrayLike, n_given: int, n_labeled: int) -> NDArray[np.float64]:
    """Validate the weights of labels."""
    found = np.asarray(expect_numbers(weights, "weights"))
    if found.shape != (n_given,):
        raise ValueError(
            f"weights must be one number for each of the {n_given:,} labels, got shape {found.shape}."
        )
    if n_labeled < n_given:
        raise ValueError("A node is repeated: with weights, give every node one label.")
    if not ((found >= LEAST_WEIGHT) & (found <= LARGEST_WEIGHT)).all():
        raise ValueError(f"Weights of labels must lie between {LEAST_WEIGHT:g} and {LARGEST_WEIGHT:g}.")
    return found


def _warn_of_gaps(y: NDArray[np.int64]) -> None:
    """Warn if a class below the largest has no label: labels 1 and 2 may be meant as two classes."""
    classes = np.unique(y)
    gaps = np.flatnonzero(classes != np.arange(classes.size))
    if classes.size > 1 and gaps.size and not _MUTED.get():
        warn(
            f"y holds classes up to {classes[-1]}, counted from 0, and class {gaps[0]} has no label: {classes[-1] + 1:,} classes "
            f"are taken. Give n_classes={classes[-1] + 1} if they are meant; otherwise number classes without gaps, as "
            "np.unique(y, return_inverse=True)[1] does.",
        )


def signs(y: Any) -> Any:
    """The labels -1 and +1 of two classes, as the paper writes them."""
    return 2 * y - 1


def check_labels(
    nodes: ArrayLike, y: ArrayLike, n_classes: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Validate labels: unique nodes and their classes 0 to K - 1; labels -1 and +1 become classes 0 and 1.

    A node that is repeated with the same label is kept once; with different labels it is an error.
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
