"""How often does a posterior say "Converged" and is wrong? Small posteriors with known answers, every sampler, eight seeds.

Among them are those that chains find hardest: nearly equal rows with contradictory labels, where a slab much thinner
than the prior may hold most of the posterior. A claim is false if any class probability at any node, with or without
noise, is off by more than 0.05 and by more than five Monte-Carlo errors.
"""

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import log, log1p, sqrt

import numpy as np
from scipy.special import log_ndtr, ndtr
from sklearn.exceptions import ConvergenceWarning

from graphuq import HMC, NUTS, PCN, EllipticalSlice, Orthant, Referenced, Refractive, Tempered, sample
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.models.base import offers
from graphuq.prior import GaussianPrior

TOLERANCE = 0.05
N_ERRORS = 5
N_SEEDS = 8


# ---- answers -------------------------------------------------------------------------------------------------------
# Points x with weights that stand for N(0, I), and u = A x at all nodes: from the definitions, in NumPy, in double
# precision. In two dimensions the points are a quadrature, exact to six digits; else an importance sample.


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


# ---- problems ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """A prior, a model, and how to know the answer. Problems of one kind have the same shapes: they compile once."""

    name: str
    kind: str
    prior: GaussianPrior = field(repr=False)
    model: object = field(repr=False)
    solve: Callable[[], Answer] = field(repr=False)

    @cache  # noqa: B019
    def answer(self):
        """Computed when first asked for."""
        return self.solve()


N_NODES = 12


def quiet(model, nodes, y, **settings):
    """A model, without the warning that one class alone is labeled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(np.asarray(nodes), np.asarray(y), **settings)


def in_the_plane(name, angles, y, model, lengths=1.0, **settings):
    """Six labels on two modes; six more nodes between them and elsewhere."""
    angles = np.asarray(angles, dtype=float)
    others = np.array([(angles[0] + angles[1]) / 2, angles[2] + 1e-7, 0.5, 1.1, 2.7, -0.4])
    every = np.concatenate([angles, others])
    rows = np.stack([np.cos(every), np.sin(every)], axis=1)
    rows[:6] *= np.broadcast_to(lengths, (6,))[:, None]
    made = quiet(model, np.arange(6), y, **settings)
    kind = f"{model.__name__}{' with mistakes' if settings.get('delta') else ''}, modes"
    return Problem(name, kind, GaussianPrior(rows, np.ones(2)), made, lambda: planar(rows, made))


def on_labels(name, y, model, *, gap, **settings):
    """Four labels on eight modes: two are near rows, two stand alone."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((N_NODES, 8))
    rows[1] = rows[0] + gap * rng.standard_normal(8)
    rows[4] = rows[0] + 0.3 * rng.standard_normal(8)
    rows[5] = (rows[0] + rows[2]) / 2
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    made = quiet(model, np.arange(4), y, **settings)
    kind = f"{model.__name__}{' with mistakes' if settings.get('delta') else ''}, labels"
    return Problem(name, kind, GaussianPrior(rows, np.ones(8)), made, lambda: importance(rows, made))


def with_tail(name, y, model, *, tail, **settings):
    """Six labels on three modes of a graph of two cliques with a bridge, and a little variance beside the modes."""
    rng = np.random.default_rng(6)
    group = np.repeat([0, 1], N_NODES // 2)
    rows = np.stack([np.ones(N_NODES), 2 * group - 1.0, rng.standard_normal(N_NODES)], axis=1)
    rows[:, 2] *= np.arange(N_NODES) % 6 > 3  # nearly equal rows in each clique
    vectors = np.linalg.qr(rows)[0]
    prior = GaussianPrior(vectors, np.array([4.0, 6.0, 2.0]), tail)
    factor = np.hstack([vectors * np.sqrt(prior.variances - tail), sqrt(tail) * np.eye(N_NODES)])
    made = quiet(model, np.array([0, 1, 2, 6, 7, 8]), y, **settings)
    return Problem(name, f"{model.__name__}, tail", prior, made, lambda: importance(factor, made))


def three_classes(name, angles, y, model, **settings):
    """Six labels of three classes on two modes."""
    every = np.concatenate([angles, [(angles[0] + angles[1]) / 2, 0.5, 1.1, 2.7, -0.4, 1.8]])
    rows = np.stack([np.cos(every), np.sin(every)], axis=1)
    made = quiet(model, np.arange(6), y, n_classes=3, **settings)
    kind = f"{model.__name__}{' with mistakes' if settings.get('delta') else ''}, three classes"
    return Problem(name, kind, GaussianPrior(rows, np.ones(2)), made, lambda: importance(rows, made))


def cliques(gap):
    """Angles of two cliques of three nearly equal rows."""
    return np.array([0.0, gap, -2 * gap, 1.9, 1.9 + gap, 1.9 - 3 * gap])


CONTRADICTION = [1, 0, 1, 0, 1, 0]
ONE_WRONG = [1, 0, 1, 0, 0, 0]
APART = [1, 1, 1, 0, 0, 0]
KNOT = [1, 1, 0, 1, 0, 1]
SPREAD = np.array([0.0, 0.4, 0.9, 1.5, 2.1, 2.6])


@cache
def problems():
    """All of them."""
    found = []
    for gap, gamma in (
        (1e-2, 0.5), (1e-2, 0.3), (1e-4, 0.5), (1e-4, 0.35), (1e-6, 0.5), (1e-6, 0.4), (1e-6, 0.37), (1e-6, 0.3),
        (1e-6, 0.1), (1e-6, 1e-3), (1e-8, 0.35), (1e-6, 10.0), (0.0, 0.4), (0.0, 0.01),
    ):  # fmt: skip
        name = f"two cliques {gap:g} wide, gamma {gamma:g}"
        found.append(in_the_plane(name, cliques(gap), CONTRADICTION, LevelSet, gamma=gamma))
    for gap, gamma in ((1e-3, 0.4), (1e-6, 0.4), (1e-6, 0.2), (1e-6, 1.0)):
        name = f"one wrong label in a clique {gap:g} wide, gamma {gamma:g}"
        found.append(in_the_plane(name, cliques(gap), ONE_WRONG, LevelSet, gamma=gamma))
    for gap, gamma, order in ((1e-7, 0.3, KNOT), (1e-8, 0.7, KNOT), (1e-7, 1.0, KNOT), (1e-7, 0.5, KNOT[::-1])):
        name = f"a knot {gap:g} wide, gamma {gamma:g}"
        found.append(in_the_plane(name, 0.3 + gap * np.array([0, 1, 2, 4, 5, 7]), order, LevelSet, gamma=gamma))
    for name, angles, y, gamma in (
        ("one class", SPREAD, [1] * 6, 0.1),
        ("a bridge", [0.0, 0.05, 0.1, np.pi - 0.1, np.pi - 0.05, np.pi], APART, 0.05),
        ("no order", SPREAD, [1, 0, 1, 0, 1, 0], 0.7),
        ("no order", SPREAD, [1, 0, 1, 0, 1, 0], 0.3),
    ):
        found.append(in_the_plane(f"{name}, gamma {gamma:g}", angles, y, LevelSet, gamma=gamma))
    for gap, gamma in (
        (1e-2, 1e-3), (1e-4, 1e-2), (1e-6, 1e-3), (1e-6, 1e-2), (1e-6, 0.1), (1e-6, 10.0), (0.0, 1e-3),
    ):  # fmt: skip
        name = f"two cliques {gap:g} wide, gamma {gamma:g}"
        found.append(in_the_plane(name, cliques(gap), CONTRADICTION, Probit, gamma=gamma))
    for name, angles, y, gamma in (
        ("one class", SPREAD, [1] * 6, 1e-3),
        ("one wrong label in a clique", cliques(1e-6), ONE_WRONG, 1e-2),
        ("a bridge", [0.0, 0.05, 0.1, np.pi - 0.1, np.pi - 0.05, np.pi], APART, 1e-3),
        ("no order", SPREAD, [1, 0, 1, 0, 1, 0], 1.0),
    ):
        found.append(in_the_plane(f"{name}, gamma {gamma:g}", angles, y, Probit, gamma=gamma))
    for gap, gamma, y in (
        (1e-6, 1e-3, CONTRADICTION), (1e-6, 1e-2, ONE_WRONG), (1e-3, 0.1, CONTRADICTION), (0.0, 1e-3, ONE_WRONG),
        (1e-6, 1e-5, ONE_WRONG),
    ):  # fmt: skip
        name = f"{'two cliques' if y is CONTRADICTION else 'one wrong label'} {gap:g} wide, gamma {gamma:g}"
        found.append(in_the_plane(name, cliques(gap), y, Probit, gamma=gamma, delta=0.02))
    for gap, gamma in ((1e-2, 0.4), (1e-6, 0.35), (1e-6, 0.1), (1e-4, 0.4)):
        found.append(
            on_labels(f"near twins {gap:g}, gamma {gamma:g}", [1, 0, 1, 0], LevelSet, gap=gap, gamma=gamma)
        )
    for gap, gamma in ((1e-6, 1e-3), (1e-3, 0.1)):
        found.append(on_labels(f"near twins {gap:g}, gamma {gamma:g}", [1, 0, 1, 0], Probit, gap=gap, gamma=gamma))
    for tail, gamma, y in ((1e-4, 0.4, ONE_WRONG), (1e-8, 0.4, ONE_WRONG), (1e-12, 0.35, ONE_WRONG)):
        found.append(
            with_tail(f"one wrong label, tail {tail:g}, gamma {gamma:g}", y, LevelSet, tail=tail, gamma=gamma)
        )
    for tail, gamma, y in ((1e-8, 1e-2, ONE_WRONG), (1e-4, 1e-3, ONE_WRONG)):
        found.append(
            with_tail(f"one wrong label, tail {tail:g}, gamma {gamma:g}", y, Probit, tail=tail, gamma=gamma)
        )
    three = cliques(1e-6)
    for gamma, angles, y in (
        (0.4, cliques(1e-2), [0, 1, 0, 2, 2, 2]),
        (0.27, three, [0, 1, 0, 2, 2, 2]),
        (0.05, three, [0, 1, 0, 2, 2, 2]),
        (0.5, SPREAD, [0, 1, 2, 0, 1, 2]),
    ):
        found.append(three_classes(f"gap {angles[1]:g}, gamma {gamma:g}", angles, y, LevelSet, gamma=gamma))
    for gamma, angles, y in (
        (1e-2, three, [0, 1, 0, 2, 2, 2]),
        (0.3, SPREAD, [0, 1, 2, 0, 1, 2]),
        (10.0, three, [0, 1, 0, 2, 1, 2]),
    ):
        found.append(three_classes(f"gap {angles[1]:g}, gamma {gamma:g}", angles, y, Probit, gamma=gamma))
    for gamma, angles in ((1e-3, three), (0.1, cliques(1e-2))):
        name = f"gap {angles[1]:g}, gamma {gamma:g}"
        found.append(three_classes(name, angles, [0, 1, 0, 2, 2, 2], Probit, gamma=gamma, delta=0.02))
    for epsilon, gamma in ((1.0, 1.0), (0.3, 0.6)):
        name = f"epsilon {epsilon:g}, gamma {gamma:g}"
        found.append(in_the_plane(name, SPREAD, ONE_WRONG, GinzburgLandau, epsilon=epsilon, gamma=gamma))
    return found


# ---- claims --------------------------------------------------------------------------------------------------------

LENGTH = {"n_steps": 1000, "n_warmup": 500, "n_chains": 8}
SHORT = {"n_steps": 300, "n_warmup": 200, "n_chains": 8}  # of samplers whose steps are long


def samplers(problem):
    """Every sampler that knows the model, with how long it runs."""
    model = problem.model
    found = {"PCN": (PCN(), LENGTH), "EllipticalSlice": (EllipticalSlice(), LENGTH)}
    if offers(model, "walls"):
        found["Orthant"] = (Orthant(), LENGTH)
    if offers(model, "sites") or offers(model, "reference"):
        found["Referenced(PCN)"] = (Referenced(), LENGTH)
    if isinstance(model, LevelSet):
        if model.n_fields == 1:
            found["Referenced(Refractive)"] = (Referenced(Refractive()), LENGTH)
        return found
    found["NUTS"] = (NUTS(max_doublings=7), SHORT)
    found["HMC"] = (HMC(max_steps=100), SHORT)
    if offers(model, "sites") or offers(model, "reference"):
        found["Referenced(NUTS)"] = (Referenced(NUTS(max_doublings=7)), SHORT)
    if isinstance(model, GinzburgLandau):
        found["Referenced(Tempered)"] = (Referenced(Tempered()), SHORT)
    return found


@dataclass(frozen=True)
class Claim:
    """What a posterior says of itself, and what is true."""

    converged: bool
    off: float  # the worst class probability at any node
    false: bool  # it says that it has converged, and is off by more than it may


def judge(problem, posterior):
    """Compare every class probability at every node with the answer."""
    answer = problem.answer()
    worst, wrong = 0.0, False
    for truth, noise in ((answer.plain, False), (answer.predictive, True)):
        found = posterior.classes(noise=noise)
        off = np.abs(found.probability - truth)
        wrong |= bool(np.any(off > np.maximum(TOLERANCE, N_ERRORS * np.hypot(found.error, answer.error))))
        worst = max(worst, float(off.max()))
    converged = posterior.diagnostics().converged
    return Claim(converged, worst, converged and wrong)


def claim(problem, sampler, length, seed, **settings):
    """Sample and judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return judge(problem, sample(problem.prior, problem.model, sampler, seed=seed, **length, **settings))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=N_SEEDS, help="how many seeds")
    parser.add_argument("--kind", default="", help="only problems whose kind has this in its name")
    parser.add_argument("--sampler", default="", help="only samplers with this in their name")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or float64")
    options = parser.parse_args()
    chosen = [problem for problem in problems() if options.kind in problem.kind]
    counts: dict[str, np.ndarray] = {}
    for number, problem in enumerate(chosen, start=1):
        began, told = time.perf_counter(), []
        for name, (sampler, length) in samplers(problem).items():
            if options.sampler not in name:
                continue
            try:
                found = [
                    claim(problem, sampler, length, seed, dtype=options.dtype) for seed in range(options.seeds)
                ]
            except TypeError:  # NUTS and HMC refuse a Phi that is flat wherever they look
                continue
            row = np.array([[1, each.converged, each.false] for each in found]).sum(axis=0)
            counts[name] = counts.get(name, 0) + row
            told.append(f"{name} {row[1]}/{row[0]}" + (f", {row[2]} FALSE" if row[2] else ""))
        seconds = time.perf_counter() - began
        print(f"{number:2d} of {len(chosen)}, {problem.kind}: {problem.name} ({seconds:.0f} s)", flush=True)
        print(f"   {'; '.join(told)}", flush=True)
    print(f"\n{'sampler':24s} {'runs':>6s} {'said converged':>15s} {'of these false':>15s}")
    for name, (runs, converged, false) in counts.items():
        print(f"{name:24s} {runs:6d} {converged:15d} {false:15d}")
    return int(any(row[2] for row in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
