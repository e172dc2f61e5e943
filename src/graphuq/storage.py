"""A posterior on disk: one netCDF file, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from graphuq import models
from graphuq.files import whole_file
from graphuq.inference.extended import Extended
from graphuq.inference.whiten import whiten
from graphuq.models.base import Model, sees_all_nodes
from graphuq.posterior import Posterior
from graphuq.prior import GaussianPrior

FORMAT = "graphuq posterior 2"
MODELS = {cls.__name__: cls for cls in (models.Probit, models.LevelSet, models.GinzburgLandau)}


def save_posterior(posterior: Posterior, path: Path) -> None:
    """Write draws, prior and model, so that the file stands alone."""
    import xarray

    if isinstance(posterior.whitening, Extended):
        raise ValueError(
            "A posterior with new nodes cannot be saved: save that of the graph, and extend it again when it is loaded."
        )
    prior, model = posterior.whitening.prior, posterior.model
    name = type(model).__name__
    settings = {"gamma", "epsilon"}
    known = {f.name: getattr(model, f.name) for f in fields(model)} if name in MODELS else {}  # type: ignore[arg-type]
    arrays: dict[str, Any] = {
        "z": (("chain", "draw", "latent"), posterior.z),
        "acceptance": (("chain", "draw"), posterior.acceptance),
        "work": (("chain", "draw"), posterior.work),
        "vectors": (("node", "mode"), prior.vectors),
        "variances": (("mode",), prior.variances),
        "labeled": (("label",), np.asarray(model.nodes)),
    }
    if "y" in known:
        arrays["y"] = (("label",), np.asarray(known["y"]))
    attributes = {
        "format": FORMAT,
        "model": name,
        "model_settings": json.dumps({key: float(known[key]) for key in settings & known.keys()}),
        "tail_variance": prior.tail_variance,
        "prior": prior.name,
        "settings": json.dumps(posterior.settings),
    }
    # through memory: HDF5 does not survive a disk that is full
    data = xarray.Dataset(arrays, attrs=attributes)
    content = data.assign_attrs(sha256=_digest(data)).to_netcdf(engine="h5netcdf")
    with whole_file(path) as part:
        part.write_bytes(content)


def load_posterior(path: Path, model: Model | None) -> Posterior:
    """Read it back. A model that is not one of ours is not stored and must be given."""
    import xarray

    try:
        with xarray.open_dataset(path, engine="h5netcdf") as file:
            data = file.load()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a posterior of graphuq, or is damaged: {error}") from error
    if data.attrs.get("format") != FORMAT:
        raise ValueError(f"{path} is not a posterior of this version of graphuq: expected the format {FORMAT!r}.")
    if data.attrs.pop("sha256", None) != _digest(data):
        raise ValueError(f"{path} was changed or damaged after it was written: its checksum is another.")
    if model is None:
        cls = MODELS.get(data.attrs["model"])
        if cls is None:
            raise TypeError(f"{path} holds a model of your own, {data.attrs['model']}: give it as model=.")
        model = cls(data["labeled"].values, data["y"].values, **json.loads(data.attrs["model_settings"]))
    prior = GaussianPrior(
        data["vectors"].values,
        data["variances"].values,
        float(data.attrs["tail_variance"]),
        data.attrs["prior"],
    )
    seen = np.arange(prior.n_nodes) if sees_all_nodes(model) else model.nodes
    return Posterior(
        whitening=whiten(prior, seen),
        model=model,
        z=data["z"].values,
        acceptance=data["acceptance"].values,
        work=data["work"].values,
        settings=json.loads(data.attrs["settings"]),
    )


def _digest(data: Any) -> str:
    """The SHA-256 of every number and setting."""
    digest = hashlib.sha256()
    for name, array in sorted(data.variables.items()):
        values = np.ascontiguousarray(array.values)
        digest.update(f"{name} {array.dims} {values.dtype} {values.shape}".encode())
        digest.update(values.tobytes())
    for name, value in sorted(data.attrs.items()):
        digest.update(f"{name}={value}".encode())
    return digest.hexdigest()
