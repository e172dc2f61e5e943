"""Draws of z in; the quantities monitored for convergence out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.inference.diagnostics import split_r_hat
from graphuq.inference.fields import agreement, at_each_draw, drawn_fields
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model

Nodes = NDArray[np.int64]

N_EACH = 10  # number of watched nodes with a label, and without one
N_RANKED = 200  # most draws of each chain from which labels are ranked by how much the chains differ there
MOST_NUMBERS = 2**27  # values of u: over all draws, beyond which Phi is not computed; and over the ranking draws


def watched_nodes(whitening: Whitening, model: Model) -> Nodes:
    """Choose ten labeled and ten other nodes, spread evenly over the node numbers, where u depends on z.

    In components of the graph without labels u may not depend on z.
    """
    n_nodes = whitening.prior.n_nodes
    others = np.setdiff1d(np.arange(n_nodes), model.nodes)
    nodes = np.concatenate(
        [
            group[np.linspace(0, len(group) - 1, min(N_EACH, len(group))).astype(int)]
            for group in (np.sort(model.nodes), others)
            if len(group)
        ]
    )
    random_z = np.random.default_rng(0).standard_normal((1, whitening.n_latent))
    dependent = nodes[whitening.mean(random_z, nodes)[0] != 0]
    return dependent if dependent.size else nodes


def quantities(
    whitening: Whitening, model: Model, z: NDArray[Any], *, with_phi: bool = True
) -> tuple[NDArray[Any], list[str], Nodes]:
    """Monitored quantities, shape (n_chains, n_draws, n_quantities), their names, and their nodes (-1 for none).

    These are u at the watched nodes; the agreement with the label at the labeled nodes where chains differ most,
    which reveals a chain stuck on one side of a label better than u does; and, `with_phi`, Phi, which is recompiled
    for each number of draws. z has the shape (n_chains, n_draws, n_fields * n_latent).
    """
    watched = watched_nodes(whitening, model)
    n_fields = model.n_fields
    u = drawn_fields(whitening, z, watched, n_fields)
    if n_fields > 1:  # only differences between fields matter
        u = u - u.mean(axis=3, keepdims=True)
    values = [u[..., k] for k in range(n_fields)]
    names = [f"u{'' if n_fields == 1 else k} at {node}" for k in range(n_fields) for node in watched]
    sides, labeled = _sides(whitening, model, z, n_fields)
    values.append(sides)
    names += [f"class at {node}" for node in labeled]
    nodes = [*np.tile(watched, n_fields), *labeled]
    phi = _phi(whitening, model, z, n_fields) if with_phi else None
    if phi is not None:
        values.append(phi[..., None])
        names.append("Phi")
        nodes.append(-1)
    return np.concatenate(values, axis=2), names, np.array(nodes, dtype=np.int64)


def _sides(whitening: Whitening, model: Model, z: NDArray[Any], n_fields: int) -> tuple[NDArray[Any], Nodes]:
    """Agreement of u with the label, from 0 to 1, at the labeled nodes where chains differ most; and the nodes.

    A subset of the draws decides where they differ most.
    """
    if not model.offers("y"):
        return np.zeros((*z.shape[:2], 0)), np.empty(0, dtype=np.int64)

    nodes, y = np.asarray(model.nodes), np.asarray(model.y)

    def side(z: NDArray[Any], which: Any) -> NDArray[Any]:
        return agreement(model, drawn_fields(whitening, z, nodes[which], n_fields), y[which])

    n_ranked = min(N_RANKED, max(4, MOST_NUMBERS // (len(nodes) * n_fields * z.shape[0])))
    some = side(z[:, :: -(-z.shape[1] // n_ranked)], slice(None))
    candidates = np.flatnonzero(np.ptp(some, axis=(0, 1)) > 1e-3)
    r_hat = split_r_hat(some[..., candidates])
    worst = candidates[np.argsort(-np.nan_to_num(r_hat, nan=np.inf), kind="stable")[:N_EACH]]
    return side(z, worst), nodes[worst]


def _phi(whitening: Whitening, model: Model, z: NDArray[Any], n_fields: int) -> NDArray[Any] | None:
    """Phi of every draw, shape (n_chains, n_draws); None if that would take too long, or Phi does not vary."""
    if len(whitening.nodes) * n_fields * z.shape[0] * z.shape[1] > MOST_NUMBERS:
        return None
    u = drawn_fields(whitening, z, whitening.nodes, n_fields).astype(z.dtype, copy=False)
    phi = at_each_draw(model, "phi", u)
    return phi if np.ptp(phi) > 0 else None
