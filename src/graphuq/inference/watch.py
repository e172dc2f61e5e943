"""Draws of z in; the numbers by which convergence is judged, those that are reported, out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.inference.diagnostics import split_r_hat
from graphuq.inference.fields import agreement, at_each_draw, drawn_fields
from graphuq.inference.whiten import Whitening
from graphuq.models.base import Model, offer, offers

Nodes = NDArray[np.int64]

N_EACH = 10  # watched nodes with a label, and as many without
MOST_NUMBERS = 2**27  # of u at the seen nodes, beyond which Phi is not computed again for every draw


def watched_nodes(whitening: Whitening, model: Model) -> Nodes:
    """Ten labeled nodes and ten others, spread evenly over the graph's order, where the draws decide anything.

    No label reaches a component without one.
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
    any_z = np.random.default_rng(0).standard_normal((1, whitening.n_latent))
    decided = nodes[whitening.mean(any_z, nodes)[0] != 0]
    return decided if decided.size else nodes


def quantities(
    whitening: Whitening, model: Model, z: NDArray[Any], *, with_phi: bool = True
) -> tuple[NDArray[Any], list[str], Nodes]:
    """What is watched, shape (n_chains, n_draws, n_quantities), the names, and the node of each (-1 for none).

    u at some nodes; the probability of the class at labeled nodes, those where chains differ most, since a chain
    that is stuck on one side of a label shows there and not in u; and Phi.

    Args:
        whitening: what z says about u.
        model: the likelihood.
        z: draws, shape (n_chains, n_draws, n_fields * n_latent).
        with_phi: whether to look at Phi, which is compiled anew for each number of draws.
    """
    chosen = watched_nodes(whitening, model)
    n_fields = int(offer(model, "n_fields"))
    u = drawn_fields(whitening, z, chosen, n_fields)
    if n_fields > 1:  # only differences between fields matter
        u = u - u.mean(axis=3, keepdims=True)
    found = [u[..., k] for k in range(n_fields)]
    names = [f"u{'' if n_fields == 1 else k} at {node}" for k in range(n_fields) for node in chosen]
    sides, where = _sides(whitening, model, z, n_fields)
    found.append(sides)
    names += [f"class at {node}" for node in where]
    places = [*np.tile(chosen, n_fields), *where]
    phi = _phi(whitening, model, z, n_fields) if with_phi else None
    if phi is not None:
        found.append(phi[..., None])
        names.append("Phi")
        places.append(-1)
    return np.concatenate(found, axis=2), names, np.array(places, dtype=np.int64)


def _sides(whitening: Whitening, model: Model, z: NDArray[Any], n_fields: int) -> tuple[NDArray[Any], Nodes]:
    """How far u speaks for the label, at the labeled nodes where chains differ most: 0 no, 1 yes."""
    empty = np.zeros((*z.shape[:2], 0)), np.empty(0, dtype=np.int64)
    if not offers(model, "y") or len(model.nodes) * z.shape[0] * z.shape[1] > MOST_NUMBERS:
        return empty
    u = drawn_fields(whitening, z, model.nodes, n_fields)
    side = agreement(model, u, np.asarray(model.y))  # type: ignore[attr-defined]
    moves = np.ptp(side, axis=(0, 1)) > 1e-3
    if not moves.any():
        return empty
    candidates = np.flatnonzero(moves)
    spread = split_r_hat(side[..., candidates])
    worst = candidates[np.argsort(-np.nan_to_num(spread, nan=np.inf), kind="stable")[:N_EACH]]
    return side[..., worst], np.asarray(model.nodes)[worst]


def _phi(whitening: Whitening, model: Model, z: NDArray[Any], n_fields: int) -> NDArray[Any] | None:
    """Phi of every draw, shape (n_chains, n_draws); None where that would take long, or it does not vary."""
    if len(whitening.nodes) * n_fields * z.shape[0] * z.shape[1] > MOST_NUMBERS:
        return None
    u = drawn_fields(whitening, z, whitening.nodes, n_fields).astype(z.dtype, copy=False)
    found = at_each_draw(model, "phi", u)
    return found if np.ptp(found) > 0 else None
