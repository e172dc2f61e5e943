"""Small posteriors with known answers: those that chains find hardest among them.

Nearly equal rows with contradictory labels, where a slab much thinner than the prior may hold most of the posterior;
twins, bridges, one class alone; noise from 1e-5 to 10; two and three classes, with and without mistakes.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import sqrt

import numpy as np

from benchmarks.exact_answers import Answer, importance, planar
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.prior import GaussianPrior


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
