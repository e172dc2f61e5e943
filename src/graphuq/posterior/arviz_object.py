"""Draws of u at some nodes and related groups in; an ArviZ object out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from graphuq._expect import expect_nodes
from graphuq.inference.watch import watched_nodes
from graphuq.posterior.base import Nodes, Posterior


def arviz_nodes(posterior: Posterior, nodes: ArrayLike | None) -> Nodes:
    """The requested nodes, by default those monitored for convergence."""
    if nodes is None:
        return watched_nodes(posterior.components[0].whitening, posterior.model)
    return expect_nodes(nodes, posterior.n_nodes)


def arviz_object(posterior: Posterior, nodes: Nodes, groups: dict[str, Any]) -> Any:
    """The groups with named dimensions: an `InferenceData` with ArviZ before 1.0, a `DataTree` after."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'graphuq[arviz]'.") from error

    model = posterior.model
    axes = ["node"] if model.n_fields == 1 else ["node", "class"]
    coordinates = {"node": nodes, "label": np.asarray(model.nodes), "class": np.arange(posterior.n_classes)}
    labels: dict[str, Any] = {"coords": coordinates, "dims": {"u": axes, "y": ["label"]}}
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.from_dict(**groups, **labels)
    return arviz.from_dict(groups, **labels)
