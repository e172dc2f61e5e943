"""A posterior of any kind in; a single file out, and back.

The columns of the prior's basis are stored once for all components that share them. A Gaussian posterior is stored
as the sites of expectation propagation, from which it is restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import archive
from graphuq._expect import expect_path
from graphuq.inference.sweeps import Start
from graphuq.inference.whiten import OnModes, whiten
from graphuq.models import MODELS
from graphuq.models.base import Model, expect_model, init_fields, relabeled, remade, warned_before
from graphuq.posterior.base import Posterior
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import AnyPosterior, Mixture
from graphuq.prior import GaussianPrior

FORMAT = "graphuq posterior 4"
KINDS: dict[str, Any] = {each.__name__: each for each in MODELS.values()}
SOURCES = {"drawn_from": "drawn from", "learned": "learned"}  # fields of a mixture, and their names in a file
_ARRAYS = ("nodes", "y", "weights")  # array fields of a model
_LEARNED = ("gamma", "delta", "noise")  # parameters that may differ between the components of a mixture

Arrays = archive.Arrays


def save(posterior: Posterior, path: Path) -> None:
    """Write draws or sites, prior and model to a self-contained file."""
    facts, arrays = pack(posterior)
    archive.write(path, FORMAT, facts, {"basis": _whole_basis(_priors(posterior)), **arrays})


def load(path: str | Path, *, model: Model | None = None) -> AnyPosterior:
    """Read a file written by `save`; a custom model must be passed again, with the same labels."""
    if model is not None:
        expect_model(model)
    facts, arrays = archive.read(expect_path(path), FORMAT, "a posterior")
    if model is not None:
        _expect_same(model, facts["components"][0], arrays)
    return unpack(facts, arrays, arrays["basis"], model)


def _expect_same(model: Any, facts: dict[str, Any], arrays: Arrays) -> None:
    """Raise an error if a model differs from that of a file in its kind, its labels or, if it is ours, its numbers."""
    kind, own = KINDS.get(facts["model"]), type(model)
    if kind is not (own if own in KINDS.values() else None):
        holds = f"graphuq's {facts['model']}" if kind else f"a model of your own, {facts['model']}"
        raise ValueError(f"The file holds {holds}, and the model given is {own.__module__}.{own.__name__}.")
    if kind:
        _expect_numbers(model, facts["model settings"])
    for name, what in (
        ("nodes", "labeled nodes"),
        ("y", "classes of the labels"),
        ("weights", "weights of the labels"),
    ):
        stored: Any = arrays.get(f"model {name}")
        if stored is not None and not np.array_equal(stored, getattr(model, name, [])):
            raise ValueError(
                f"The model given has other {what} than the one in the file: give it the same, in the same order."
            )


def _expect_numbers(model: Any, numbers: dict[str, Any]) -> None:
    for name, number in numbers.items():
        if (value := getattr(model, name, None)) != number:
            raise ValueError(f"The file holds a model with {name} = {number}, and the one given has {value}.")


def pack(posterior: Any) -> tuple[dict[str, Any], Arrays]:
    """Serialize a posterior, except for the basis of its priors, to JSON-compatible facts and arrays."""
    model = posterior.model
    arrays: Arrays = {"model nodes": np.asarray(model.nodes)}
    if model.offers("y"):
        arrays["model y"] = np.asarray(model.y)
    if model.weights is not None:
        arrays["model weights"] = np.asarray(model.weights)
    facts: dict[str, Any] = {"components": []}
    if isinstance(posterior, Mixture):
        arrays["weights"] = posterior.weights
        facts["temperature"] = posterior.temperature
        if posterior.class_weights is not None:
            arrays["class weights"] = posterior.class_weights
    for name, source in _sources(posterior).items():
        facts[name], more = pack(source)
        arrays |= _under(name, more)
    for k, each in enumerate(posterior.components):
        component, more = _pack_one(each)
        facts["components"].append(component)
        arrays |= _under(str(k), more)
    return facts, arrays


def _sources(posterior: Any) -> dict[str, Mixture]:
    """The mixtures that a mixture was made from, by their names in a file."""
    found = {name: getattr(posterior, attribute, None) for attribute, name in SOURCES.items()}
    return {name: source for name, source in found.items() if source is not None}


def _priors(posterior: Any) -> list[GaussianPrior]:
    """The priors of all components, and of those of its sources."""
    of_sources = [prior for source in _sources(posterior).values() for prior in _priors(source)]
    return [each.prior for each in posterior.components] + of_sources


def _whole_basis(priors: list[GaussianPrior]) -> NDArray[Any]:
    """The matrix that contains the columns of all components."""
    width = max(prior.columns.stop for prior in priors)
    whole = np.zeros((priors[0].n_nodes, width))
    known: NDArray[np.bool_] = np.zeros(width, dtype=bool)  # columns filled so far
    of_matrix: dict[Any, NDArray[np.bool_]] = {}  # those filled from each matrix, by where in memory it begins
    for prior in priors:
        vectors, columns = prior.vectors, prior.columns
        begin = vectors.ctypes.data - prior.first * vectors.strides[1], vectors.strides
        own = of_matrix.setdefault(begin, np.zeros_like(known))[columns]
        filled, compared = known[columns], known[columns] & ~own
        same = len(vectors) == len(whole)
        if not (same and np.array_equal(whole[:, columns][:, compared], vectors[:, compared])):
            raise ValueError("The components of a mixture in a file must be on one graph: save each by itself.")
        whole[:, prior.first + np.flatnonzero(~filled)] = vectors[:, ~filled]
        own[:], filled[:] = True, True
    return whole


def unpack(facts: dict[str, Any], arrays: Arrays, basis: NDArray[Any], model: Model | None = None) -> AnyPosterior:
    """Restore a posterior serialized by `pack`, whose priors have columns of `basis`."""
    components = []
    for k, component in enumerate(facts["components"]):
        own = _within(arrays, str(k))
        own |= {name: arrays[f"model {name}"] for name in _ARRAYS if f"model {name}" in arrays}
        components.append(_unpack_one(component, own, basis, model))
    if "weights" not in arrays:
        return components[0]
    sources: Any = {
        attribute: unpack(facts[name], _within(arrays, name), basis, model)
        for attribute, name in SOURCES.items()
        if name in facts
    }
    temperature, class_weights = float(facts["temperature"]), arrays.get("class weights")
    return Mixture(tuple(components), arrays["weights"], temperature, class_weights, **sources)


def _under(part: str, arrays: Arrays) -> Arrays:
    """The arrays, with a prefix to their names."""
    return {f"{part} {name}": each for name, each in arrays.items()}


def _within(arrays: Arrays, part: str) -> Arrays:
    """The arrays whose names start with a prefix, without it."""
    return {name.removeprefix(f"{part} "): each for name, each in arrays.items() if name.startswith(f"{part} ")}


def _pack_one(posterior: Draws | GaussianPosterior) -> tuple[dict[str, Any], Arrays]:
    prior, model = posterior.prior, posterior.model
    kind: Any = type(model)
    name = kind.__name__
    if kind in KINDS.values():
        settings = {f.name: getattr(model, f.name) for f in fields(kind) if f.init and f.name not in _ARRAYS}
    else:
        if name in KINDS:
            name = f"{kind.__module__}.{name}"
        settings = _reals(model, sorted({*_LEARNED, *model.numbers, *init_fields(model)}))
    facts = {
        "model": name,
        "model settings": settings,
        "prior": prior.name,
        "tail variance": prior.tail_variance,
        "first column": prior.first,
        "on modes": isinstance(posterior.whitening, OnModes),
    }
    arrays: Arrays = {"variances": prior.variances}
    if isinstance(posterior, Draws):
        arrays |= {"z": posterior.z, "acceptance": posterior.acceptance, "work": posterior.work}
        if posterior.diverging is not None:
            arrays["diverging"] = posterior.diverging
        return facts | {"kind": "draws", "settings": posterior.settings}, arrays
    fit: Any = posterior.fit
    arrays |= {"precision": fit.precision, "shift": fit.shift}
    facts |= {"n_sweeps": fit.n_sweeps, "converged": bool(fit.converged)}
    return facts | {"kind": "gaussian", "negligible": posterior.negligible}, arrays


def _reals(model: Any, names: Iterable[str]) -> dict[str, float]:
    """Those of the attributes of a model that are numbers."""
    values: Any = {name: getattr(model, name, None) for name in names}
    plain = {name: value.item() if getattr(value, "ndim", 1) == 0 else value for name, value in values.items()}
    return {name: float(value) for name, value in plain.items() if isinstance(value, Real) and isfinite(value)}


def _unpack_one(
    facts: dict[str, Any], arrays: Arrays, basis: NDArray[Any], model: Model | None
) -> Draws | GaussianPosterior:
    if facts["model"] in KINDS:
        with warned_before():
            given = {name: arrays[name] for name in _ARRAYS if name in arrays}
            model = KINDS[facts["model"]](**given, **facts["model settings"])
    elif model is None:
        raise TypeError(f"The file holds a model of your own, {facts['model']}: give it as model=.")
    else:
        numbers = facts["model settings"]
        if learned := init_fields(model) & {*_LEARNED, *model.numbers} & numbers.keys():
            model = remade(model, **{name: numbers[name] for name in learned})
        _expect_numbers(model, numbers)
        if not np.array_equal(model.nodes, arrays["nodes"]):  # of a mixture before its labels changed
            model = relabeled(model, arrays["nodes"], arrays["y"])
    variances = arrays["variances"]
    first = int(facts["first column"])
    columns = basis[:, first : first + variances.size]
    prior = GaussianPrior(columns, variances, float(facts["tail variance"]), facts["prior"], first)
    seen = np.arange(prior.n_nodes) if model.sees_all_nodes else np.asarray(model.nodes)
    whitening = OnModes(prior, seen) if facts["on modes"] else whiten(prior, seen)
    if facts["kind"] == "draws":
        statistics = arrays["z"], arrays["acceptance"], arrays["work"]
        return Draws(whitening, model, *statistics, facts["settings"], arrays.get("diverging"))
    start = Start(arrays["precision"], arrays["shift"])
    # An infinite tolerance is met at once and leaves the sites unchanged.
    posterior = GaussianPosterior.on(whitening, model, facts["negligible"], start=start, tolerance=np.inf)
    fit = replace(posterior.fit, n_sweeps=facts["n_sweeps"], converged=facts["converged"])
    return replace(posterior, fit=fit)
