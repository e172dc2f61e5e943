"""Probabilities and a posterior in; the numbers behind each plot of the report out."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.calibration import Reliability
from graphuq.inference.diagnostics import Diagnostics
from graphuq.inference.fields import lead
from graphuq.posterior import Draws
from graphuq.spectrum.result import Spectrum

Array = NDArray[np.float64]
Nodes = NDArray[np.int64]

N_AXES, MAX_AXES = 4, 12
MAX_PICTURE_BYTES = 4_000_000
N_TRACE = 100
N_TRACES = 2


def embedding(modes: Spectrum, p: Array, shown: Nodes) -> dict[str, Any]:
    """Coordinates of nodes on the map: the first nonconstant eigenvectors.

    On a disconnected graph each eigenvector is zero on all connected components but one, so the components are
    first laid out side by side, each by its own eigenvectors. With more than two classes, no two eigenvectors
    separate all groups, so the map starts with two linear combinations of the leading ones, q(x)^T Q^T P A: the
    projections of the points where the probabilities P place each row between the corners A of a polygon, one
    corner per class.
    """
    n_classes = p.shape[1]
    first = min(modes.n_components, max(modes.n_modes - 2, 0))
    chosen = list(range(first, min(first + max(N_AXES, min(n_classes, MAX_AXES)), modes.n_modes)))
    names, columns = [f"eigenvector {j}" for j in chosen], [modes.vectors[shown, j] for j in chosen]
    if modes.n_components > 1:
        names, columns = ["across", "up", *names], [*_side_by_side(modes)[shown].T, *columns]
    if n_classes > 2:
        leading = np.asarray(modes.vectors[:, : first + n_classes])
        views = leading[shown] @ (leading.T @ (p @ _corners(p)))
        names, columns = ["view 1", "view 2", *names], [*views.T, *columns]
    coordinates = [rounded(column) for column in columns]
    return {"names": names, "coordinates": coordinates, "n_pieces": modes.n_components}


def _side_by_side(modes: Spectrum) -> Array:
    """Lay out each connected component in its own square, with area by number of nodes; shape (n_nodes, 2)."""
    n_pieces = modes.n_components
    null = modes.vectors[:, :n_pieces]
    # Rows of the null space have the same direction within a component, and different ones across components.
    length = np.linalg.norm(null, axis=1, keepdims=True)  # 0 on components that the modes do not cover
    directions = np.round(null / np.where(length > 0, length, 1), 6)
    _, piece, sizes = np.unique(directions, axis=0, return_inverse=True, return_counts=True)
    place, corner, height = np.zeros((modes.n_nodes, 2)), np.zeros(2), 0.0
    width = 1.2 * np.sqrt(modes.n_nodes)
    for k in np.argsort(-sizes, kind="stable"):
        members, side = np.flatnonzero(piece.ravel() == k), float(np.sqrt(sizes[k]))
        if corner[0] and corner[0] + side > width:  # the next shelf
            corner, height = np.array([0.0, corner[1] + 1.15 * height]), 0.0
        place[members] = corner + side * _in_unit_square(modes.vectors[members, n_pieces:])
        corner, height = corner + np.array([1.15 * side, 0.0]), max(height, side)
    return place


def _in_unit_square(vectors: Array) -> Array:
    """Place one component in the unit square, by the first two eigenvectors that vary on it or on a circle."""
    varying = np.flatnonzero(np.ptp(vectors, axis=0) > 1e-6)[:2] if vectors.size else np.empty(0, dtype=int)
    if len(varying) < 2:
        angle = 2 * np.pi * np.arange(len(vectors)) / len(vectors)
        return 0.5 + 0.4 * np.column_stack([np.cos(angle), np.sin(angle)])
    own = vectors[:, varying]
    return np.asarray((own - own.min(axis=0)) / np.ptp(own, axis=0))


def _corners(p: Array) -> Array:
    """Corners of a polygon, shape (n_classes, 2); classes that are often confused are adjacent."""
    doubt = p.T @ p
    order = [int(np.argmax(np.max(doubt - np.diag(np.diag(doubt)), axis=1)))]
    while len(order) < len(doubt):
        rest = np.setdiff1d(np.arange(len(doubt)), order)
        order.append(int(rest[np.argmax(doubt[order[-1], rest])]))
    angle = 2 * np.pi * np.argsort(order) / len(order)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def confidence(p: Array) -> dict[str, Any]:
    """Histogram of the confidence of each class, from its minimum 1 / n_classes to 1."""
    n_classes = p.shape[1]
    edges = np.linspace(1 / n_classes, 1, 21)
    predicted, sure = uncertainty.most_probable(p), np.maximum(uncertainty.confidence(p), edges[0])
    counts = [np.histogram(sure[predicted == k], edges)[0].tolist() for k in range(n_classes)]
    return {"edges": rounded(edges), "counts": counts}


def traces(posterior: Draws, diagnosis: Diagnostics, predicted: Nodes) -> list[dict[str, Any]]:
    """Traces of the margin of u for the predicted class along every chain, at the nodes of worst convergence."""
    places = diagnosis.nodes[np.argsort(-diagnosis.r_hat, kind="stable")]
    nodes = np.array(list(dict.fromkeys(places[places >= 0].tolist()))[:N_TRACES], dtype=np.int64)
    step = max(1, posterior.n_draws // N_TRACE)
    classes = np.ones_like(nodes) if posterior.n_classes == 2 else predicted[nodes]
    u = posterior.latent(nodes)
    draws = lead(u[..., None] if u.ndim == 3 else u, classes)[:, ::step]  # u itself for two classes
    return [
        {"node": int(node), "class": int(k), "step": step, "chains": [rounded(chain) for chain in draws[..., i]]}
        for i, (node, k) in enumerate(zip(nodes, classes, strict=True))
    ]


def reliability(bins: Reliability) -> dict[str, Any]:
    """The nonempty bins of a reliability diagram."""
    nonempty = bins.counts > 0
    return {
        "left": rounded(bins.edges[:-1][nonempty]),
        "right": rounded(bins.edges[1:][nonempty]),
        "confidence": rounded(bins.confidence[nonempty]),
        "frequency": rounded(bins.frequency[nonempty]),
        "counts": bins.counts[nonempty].tolist(),
    }


def pictures(gray: NDArray[np.uint8] | None, shown: Nodes) -> dict[str, Any] | None:
    """Gray values of the shown nodes as one string; only the first ones if the page cannot hold all."""
    if gray is None:
        return None
    height, width = gray.shape[1:]
    fit = shown[: max(1, MAX_PICTURE_BYTES // (height * width))]
    return {"height": height, "width": width, "nodes": fit.tolist(), "gray": packed(gray[fit])}


def packed(values: NDArray[Any]) -> str:
    """Encode the bytes of an array as base64."""
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def sureness(confidence: Any, n_classes: int) -> Any:
    """Confidence rescaled from 0, all classes equally probable, to 1."""
    return np.clip((confidence - 1 / n_classes) / (1 - 1 / n_classes), 0, 1)


def rounded(values: NDArray[Any]) -> list[float]:
    """Round to four significant digits, enough for a plot."""
    return [float(f"{value:.4g}") for value in np.asarray(values, dtype=float)]
