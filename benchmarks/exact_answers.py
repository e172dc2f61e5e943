"""A prior's factor and a model in; class probabilities at all nodes, exact or with a known error, out.

Points x with weights that stand for N(0, I), and u = A x at all nodes: from the definitions, in NumPy, in double
precision. In two dimensions the points are a quadrature, exact to six digits; else an importance sample.
"""

import itertools
from dataclasses import dataclass
from math import log, log1p, sqrt

import numpy as np
from scipy.special import log_ndtr, ndtr

from graphuq.models import GinzburgLandau, LevelSet, Probit


@dataclass(frozen=True)
class Answer:
    """P(class) at all nodes, shape (n_nodes, n_classes), without and with noise, and how far off each may be."""

    plain: np.ndarray
    predictive: np.ndarray
    error: float


def log_likelihood(model, u):
    """Of all labels together, for u of shape (n_points, n_nodes, n_fields)."""
    if isinstance(model, GinzburgLandau):
        v = u[..., 0]
        wells = np.square(v**2 - 1).sum(axis=1) / (4 * model.epsilon)
        return -wells - np.square(2 * model.y - 1 - v[:, model.nodes]).sum(axis=1) / (2 * model.gamma**2)
    u = u[:, model.nodes]
    if isinstance(model, LevelSet):
        chosen = (u[..., 0] >= 0).astype(int) if model.n_fields == 1 else u.argmax(axis=2)
        return -(2 if model.n_fields == 1 else 1) / model.gamma**2 * (chosen != model.y).sum(axis=1)
    if model.n_fields == 1:
        right = log_ndtr((2 * model.y - 1) * u[..., 0] / model.gamma)
        if model.delta:
            right = np.logaddexp(log(model.delta), log1p(-2 * model.delta) + right)
        return right.sum(axis=1)
    own = np.take_along_axis(u, model.y[None, :, None], axis=2)
    return np.log(leads((own - u) / model.gamma, model.y, model.delta) + 1e-300).sum(axis=1)


def leads(lead, own, delta=0.0):
    """P that the own field, by `lead` ahead of others before all get unit noise, is the largest after: (n, J).

    With mistakes, every field that is ahead after all costs ``delta / (1 - delta)``.
    """
    x, weights = np.polynomial.hermite_e.hermegauss(24)
    total = 0.0
    others = np.arange(lead.shape[2]) != np.asarray(own)[:, None]
    for point, weight in zip(x, weights / weights.sum(), strict=True):
        each = (delta + (1 - 2 * delta) * ndtr(point + lead)) / (1 - delta)
        total = total + weight * np.where(others, each, 1).prod(axis=2)
    return total


def class_probability(model, u, noise):
    """P(class) at every node for each point, shape (n_points, n_nodes, n_classes); of several fields, noise is drawn."""
    if u.shape[2] == 1:
        up = ndtr(u[..., 0] / noise) if noise else (u[..., 0] >= 0).astype(float)
        return np.stack([1 - up, up], axis=2)
    g = u + noise * np.random.default_rng(len(u)).standard_normal(u.shape) if noise else u
    return (g.argmax(axis=2)[..., None] == np.arange(u.shape[2])).astype(float)


def planar(rows, model, *, finest=1e-10):
    """Quadrature over the plane: angles and lengths in panels that grow away from every line u_j = 0, and from 0."""
    nodes, weights = np.polynomial.legendre.leggauss(6)
    angles = np.arctan2(rows[:, 1], rows[:, 0])
    lines = np.unique(np.concatenate([angles + np.pi / 2, angles - np.pi / 2]) % (2 * np.pi))
    lines = np.append(lines, lines[0] + 2 * np.pi)
    edges = []
    for low, high in itertools.pairwise(lines):
        half = (high - low) / 2
        n = 0 if isinstance(model, LevelSet) else max(0, int(np.ceil(log(half / finest) / log(3))))
        steps = half * 3.0 ** -np.arange(n + 1)[::-1]
        edges += [low, *(low + steps), *(high - steps[:-1][::-1])]
    edges.append(lines[-1])
    theta, theta_weights = panels(np.array(edges), nodes, weights)
    lengths = np.concatenate([[0], 8.0 * 2.0 ** -np.arange(0, 24 if isinstance(model, Probit) else 4)[::-1]])
    if isinstance(model, GinzburgLandau):
        lengths = np.linspace(0, 8, 25)
    rho, rho_weights = panels(lengths, nodes, weights)
    rho_weights = rho_weights * rho * np.exp(-(rho**2) / 2)
    directions = rows @ np.stack([np.cos(theta), np.sin(theta)])  # (n_nodes, n_angles)
    total = Totals(model)
    for r, weight in zip(rho, rho_weights, strict=True):
        total.add((r * directions).T[..., None], np.log(np.maximum(theta_weights * weight, 1e-300)))
    return total.answer(0.0)


def panels(edges, nodes, weights):
    """Gauss and Legendre on every panel."""
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def importance(factor, model, *, n_draws=200_000, seed=0):
    """Draws from a mixture of Gaussians, some of them thin across the planes where near rows contradict each other."""
    rng = np.random.default_rng(seed)
    n_fields, n_modes = model.n_fields, factor.shape[1]
    directions, widths = contradictions(factor[model.nodes], model)
    precisions = []
    for pattern in itertools.product((None, 0.5, 5.0), repeat=len(directions)):
        precision = np.eye(n_fields * n_modes)
        for direction, width, times in zip(directions, widths, pattern, strict=True):
            if times is not None:
                precision += (1 / min(1.0, times * width) ** 2 - 1) * np.outer(direction, direction)
        precisions.append(precision)
    roots = [np.linalg.cholesky(precision) for precision in precisions]
    total, block = Totals(model), 20_000
    for _ in range(n_draws // block):
        which = rng.integers(len(roots), size=block)
        normal = rng.standard_normal((block, n_fields * n_modes))
        x = np.empty_like(normal)
        for k, root in enumerate(roots):
            x[which == k] = np.linalg.solve(root.T, normal[which == k].T).T
        log_proposal = np.logaddexp.reduce(
            [np.log(np.diag(root)).sum() - np.square(x @ root).sum(axis=1) / 2 for root in roots], axis=0
        )
        u = np.moveaxis(x.reshape(block, n_fields, n_modes) @ factor.T, 1, 2)
        total.add(u, -np.square(x).sum(axis=1) / 2 - log_proposal)
    return total.answer()


def contradictions(rows, model):
    """Unit directions of x across near rows with other labels, and how thin the slab between them is."""
    lengths = np.linalg.norm(rows, axis=1)
    units = rows / lengths[:, None]
    noise = model.gamma if isinstance(model, Probit) else 0.0
    directions, widths = [], []
    for i, j in itertools.combinations(range(len(rows)), 2):
        gap = np.linalg.norm(units[i] - units[j])
        if model.y[i] == model.y[j] or gap > 0.3:
            continue
        direction = (units[i] + units[j]) / np.linalg.norm(units[i] + units[j])
        if model.n_fields > 1:
            sides = np.zeros(model.n_fields)
            sides[model.y[i]], sides[model.y[j]] = 1 / sqrt(2), -1 / sqrt(2)
            direction = np.kron(sides, direction)
        width = float(np.hypot(gap, noise / lengths[i]))
        near = [k for k, known in enumerate(directions) if abs(known @ direction) > 0.99]
        if near and not 0.2 < widths[near[0]] / width < 5:
            near = []
        if not near and width > 0:
            directions.append(direction)
            widths.append(width)
    return directions[:4], widths[:4]


class Totals:
    """Weighted sums over points, by the largest weight so far."""

    def __init__(self, model):
        self.model, self.top = model, -np.inf
        self.sums, self.parts = 0.0, []

    def add(self, u, log_weight):
        """More points u, shape (n_points, n_nodes, n_fields), and the logs of their weights."""
        log_weight = log_weight + log_likelihood(self.model, u)
        top = max(self.top, log_weight.max())
        weight = np.exp(log_weight - top)
        noise = self.model.gamma if isinstance(self.model, Probit) else 0.0
        heavy = weight > 0
        found = [
            np.tensordot(weight[heavy], class_probability(self.model, u[heavy], noise), 1)
            for noise in (0.0, noise)
        ]
        self.parts = [(mass * np.exp(self.top - top), part * np.exp(self.top - top)) for mass, part in self.parts]
        self.parts.append((weight.sum(), np.array(found)))
        self.top = top

    def answer(self, error=None):
        """The answer; its error, where the points are random, from the blocks."""
        mass = np.array([mass for mass, _ in self.parts])
        part = np.array([part for _, part in self.parts])
        found = part.sum(axis=0) / mass.sum()
        if error is None:
            off = part - mass[:, None, None, None] * found
            error = float(np.sqrt(np.square(off).sum(axis=0)).max() / mass.sum())
        return Answer(found[0], found[1], error)
