"""A posterior of any kind to one file, and back.

The columns of the prior's basis are stored once, however many components share them. Expectation propagation is
stored as its sites, from which the Gaussian follows.
"""

from __future__ import annotations

from dataclasses import fields, replace
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
from graphuq.models.base import Model, ask, expect_model, offer, warned_before, with_numbers
from graphuq.posterior.base import Posterior
from graphuq.posterior.draws import Draws
from graphuq.posterior.gaussian import GaussianPosterior
from graphuq.posterior.mixture import AnyPosterior, Mixture
from graphuq.prior import GaussianPrior

FORMAT = "graphuq posterior 3"
KINDS: dict[str, Any] = {each.__name__: each for each in MODELS.values()}
WHOLE = "drawn from"
_ARRAYS = ("nodes", "y")  # of a model
_LEARNED = ("gamma", "delta", "noise")  # numbers in which the components of a mixture differ

Arrays = archive.Arrays


def save(posterior: Posterior, path: Path) -> None:
    """Write draws or sites, prior and model, so that the file stands alone."""
    facts, arrays = pack(posterior)
    archive.write(path, FORMAT, facts, arrays)


def load(path: str | Path, *, model: Model | None = None) -> AnyPosterior:
    """Read what `save` wrote; a model of your own must be given again."""
    if model is not None:
        expect_model(model)
    facts, arrays = archive.read(expect_path(path), FORMAT, "a posterior")
    return unpack(facts, arrays, model)


def pack(posterior: Any, basis: NDArray[Any] | None = None) -> tuple[dict[str, Any], Arrays]:
    """A posterior as facts and arrays; without the basis if that is given, and so kept elsewhere."""
    whole = posterior.drawn_from if isinstance(posterior, Mixture) else None
    model = posterior.model
    arrays: Arrays = {"model nodes": np.asarray(model.nodes)}
    if basis is None:
        undrawn = whole.components if whole else ()
        arrays["basis"] = basis = _whole_basis([each.prior for each in (*posterior.components, *undrawn)])
    if getattr(model, "y", None) is not None:
        arrays["model y"] = np.asarray(model.y)
    facts: dict[str, Any] = {"components": []}
    if isinstance(posterior, Mixture):
        arrays["weights"] = posterior.weights
        facts["temperature"] = posterior.temperature
    if whole is not None:
        facts[WHOLE], more = pack(whole, basis)
        arrays |= {f"{WHOLE} {name}": array for name, array in more.items()}
    for k, each in enumerate(posterior.components):
        told, more = _pack_one(each)
        facts["components"].append(told)
        arrays |= {f"{k} {name}": array for name, array in more.items()}
    return facts, arrays


def _whole_basis(priors: list[GaussianPrior]) -> NDArray[Any]:
    """The columns of all components, which are parts of one matrix."""
    width = max(prior.first + prior.n_modes for prior in priors)
    whole = np.zeros((priors[0].n_nodes, width))
    for prior in priors:
        whole[:, prior.first : prior.first + prior.n_modes] = prior.vectors
    return whole


def unpack(
    facts: dict[str, Any], arrays: Arrays, model: Model | None = None, basis: NDArray[Any] | None = None
) -> AnyPosterior:
    """The posterior that `pack` took apart."""
    basis = arrays["basis"] if basis is None else basis
    found = []
    for k, told in enumerate(facts["components"]):
        mine = _within(arrays, str(k))
        mine |= {name: arrays[f"model {name}"] for name in _ARRAYS if f"model {name}" in arrays}
        found.append(_unpack_one(told, mine, model, basis))
    if "weights" not in arrays:
        return found[0]
    whole: Any = None
    if WHOLE in facts:  # not in files of before
        whole = unpack(facts[WHOLE], _within(arrays, WHOLE), model, basis)
    return Mixture(tuple(found), arrays["weights"], float(facts["temperature"]), whole)


def _within(arrays: Arrays, part: str) -> Arrays:
    return {name.removeprefix(f"{part} "): each for name, each in arrays.items() if name.startswith(f"{part} ")}


def _pack_one(posterior: Draws | GaussianPosterior) -> tuple[dict[str, Any], Arrays]:
    prior, model = posterior.prior, posterior.model
    name = type(model).__name__
    if name in KINDS:
        settings = {f.name: getattr(model, f.name) for f in fields(KINDS[name]) if f.name not in _ARRAYS}
    else:
        told = {each: getattr(model, each, None) for each in (*_LEARNED, *offer(model, "numbers"))}
        settings = {each: float(value) for each, value in told.items() if isinstance(value, Real)}
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
        return facts | {"kind": "draws", "settings": posterior.settings}, arrays
    fit: Any = posterior.fit
    arrays |= {"precision": fit.precision, "shift": fit.shift}
    facts |= {"n_sweeps": fit.n_sweeps, "converged": bool(fit.converged)}
    return facts | {"kind": "gaussian", "negligible": posterior.negligible}, arrays


def _unpack_one(
    told: dict[str, Any], arrays: Arrays, model: Model | None, basis: NDArray[Any]
) -> Draws | GaussianPosterior:
    if model is None:
        if told["model"] not in KINDS:
            raise TypeError(f"The file holds a model of your own, {told['model']}: give it as model=.")
        with warned_before():
            model = KINDS[told["model"]](arrays["nodes"], arrays["y"], **told["model settings"])
    elif told["model"] not in KINDS:
        model = with_numbers(model, told["model settings"])
    variances = arrays["variances"]
    first = int(told["first column"])
    columns = basis[:, first : first + variances.size]
    prior = GaussianPrior(columns, variances, float(told["tail variance"]), told["prior"], first)
    seen = np.arange(prior.n_nodes) if offer(model, "sees_all_nodes") else np.asarray(model.nodes)
    whitening = OnModes(prior, seen) if told["on modes"] else whiten(prior, seen)
    if told["kind"] == "draws":
        return Draws(whitening, model, arrays["z"], arrays["acceptance"], arrays["work"], told["settings"])
    start = Start(arrays["precision"], arrays["shift"])
    # Any tolerance is met at once, so that the sites stay as they are.
    told_fit = {"tolerance": np.inf, "negligible": told["negligible"]}
    fit = ask(model, "sites").fit(whitening.matrix(seen), start=start, **told_fit)
    fit = replace(fit, n_sweeps=told["n_sweeps"], converged=told["converged"])
    return GaussianPosterior(whitening, model, fit, told["negligible"])
