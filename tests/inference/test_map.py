"""Modes: against dense algebra, a general optimizer, closed forms and a brute-force grid."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import norm

from graphuq import prior as priors
from graphuq.inference.map import find_mode
from graphuq.models import Curvature, GinzburgLandau, LevelSet, Model, Probit
from tests.oracles import dense_covariance, random_spectrum

N_NODES = 24


spectrum = partial(random_spectrum, scale=0.5**0.5)

PRIORS = {
    "full": priors.full(spectrum(N_NODES)),
    "project": priors.project(spectrum(N_NODES), n_modes=8),
    "approximate": priors.approximate(spectrum(N_NODES), n_modes=8),
    "matern": priors.matern(spectrum(N_NODES), tau=0.5, alpha=2.0, n_modes=8),
    "matern with a tail": priors.matern(spectrum(N_NODES), tau=0.5, alpha=2.0, n_modes=8, tail=True),
}
# fewer labels than modes, and more: Newton solves in the labels, then in the modes
LABELED = {"few": np.array([0, 5, 11, 17]), "many": np.arange(0, N_NODES, 2)}

every_prior = pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
every_size = pytest.mark.parametrize("nodes", LABELED.values(), ids=LABELED)


def signs(nodes):
    return np.where(np.arange(len(nodes)) % 3 == 0, -1, 1)


def covariance(prior):
    return prior.covariance(np.arange(prior.n_nodes), np.arange(prior.n_nodes))


def factor(prior):
    """B with ``B B^T = C`` on the support of the prior."""
    values, vectors = np.linalg.eigh(covariance(prior))
    kept = values > 1e-10
    return vectors[:, kept] * np.sqrt(values[kept])


def phi(model, u):
    """Phi and its gradient at all nodes, written out once more."""
    gradient, labeled, y = np.zeros_like(u), u[model.nodes], 2 * model.y - 1
    if isinstance(model, GinzburgLandau):
        gradient += (u**3 - u) / model.epsilon
        gradient[model.nodes] += (labeled - y) / model.gamma**2
        well = np.sum((u**2 - 1) ** 2) / (4 * model.epsilon)
        return well + np.sum((labeled - y) ** 2) / (2 * model.gamma**2), gradient
    t = y * labeled / model.gamma
    gradient[model.nodes] = -y * np.exp(norm.logpdf(t) - norm.logcdf(t)) / model.gamma
    return -np.sum(norm.logcdf(t)), gradient


def optimized(prior, model, start):
    """The minimizer of J, and J there, that a general optimizer finds from `start`."""
    root = factor(prior)

    def energy(z):
        value, gradient = phi(model, root @ z)
        return z @ z / 2 + value, z + root.T @ gradient

    z = np.linalg.lstsq(root, start, rcond=None)[0]
    found = minimize(energy, z, jac=True, method="BFGS", options={"gtol": 1e-9})
    return root @ found.x, found.fun


@every_size
@every_prior
def test_newton_finds_what_a_general_optimizer_finds(prior, nodes):
    model = Probit(nodes, signs(nodes), gamma=0.3)
    mode = find_mode(prior, model, tolerance=1e-10)
    u, energy = optimized(prior, model, np.zeros(N_NODES))
    assert mode.converged
    assert np.allclose(mode.u, u, atol=1e-7)
    assert np.isclose(mode.energy, energy, atol=1e-10)


@every_size
@every_prior
def test_gradient_flow_and_newton_agree_on_probit(prior, nodes):
    model = Probit(nodes, signs(nodes), gamma=0.1)
    newton = find_mode(prior, model, method="newton", tolerance=1e-10)
    flow = find_mode(prior, model, method="gradient_flow", start=prior.sample()[0], tolerance=1e-8)
    assert newton.converged
    assert flow.converged
    assert np.allclose(flow.u, newton.u, atol=1e-6)
    assert np.isclose(flow.energy, newton.energy, rtol=1e-10)


@every_prior
def test_ginzburg_landau_finds_what_a_general_optimizer_finds(prior):
    model = GinzburgLandau(LABELED["few"], signs(LABELED["few"]), gamma=0.5, epsilon=0.5)
    mode = find_mode(prior, model, tolerance=1e-9)
    u, energy = optimized(prior, model, mode.u + 0.01 * prior.sample(seed=1)[0])  # the same well
    assert np.allclose(mode.u, u, atol=1e-7)
    assert np.isclose(mode.energy, energy, atol=1e-10)


MODELS = {
    "probit": Probit(LABELED["few"], signs(LABELED["few"]), gamma=0.5),
    "ginzburg-landau": GinzburgLandau(LABELED["few"], signs(LABELED["few"]), gamma=0.5, epsilon=0.7),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@pytest.mark.filterwarnings("ignore:Not converged")
@every_model
def test_a_step_is_that_of_algorithm_4_and_not_with_the_printed_precision(model):
    # u1 = (I + beta P)^-1 (u0 - beta grad Phi(u0)), on the span of the modes but the first
    s, beta = spectrum(N_NODES), 0.05
    prior = priors.project(s, n_modes=8)
    c = N_NODES / np.sum(1 / s.values[1:8])
    q, u = s.vectors[:, 1:8], prior.sample(seed=3)[0]
    moved = q.T @ (u - beta * phi(model, u)[1])
    step = find_mode(prior, model, method="gradient_flow", start=u, beta=beta, n_steps=1, tolerance=0)
    assert np.allclose(step.u, q @ (moved / (1 + beta * s.values[1:8] / c)), atol=1e-12)
    assert not np.allclose(step.u, q @ (moved / (1 + beta * s.values[1:8] * c)), atol=1e-2)


@pytest.mark.filterwarnings("ignore:Not converged")
@every_prior
def test_a_step_over_all_nodes_is_the_resolvent_of_the_prior(prior):
    model, u, beta = MODELS["ginzburg-landau"], prior.sample(seed=3)[0], 0.05
    step = find_mode(prior, model, start=u, beta=beta, n_steps=1, tolerance=0)
    dense = dense_covariance(prior)
    resolvent = np.linalg.solve(
        dense + beta * np.eye(prior.n_nodes), dense
    )  # (I + beta P)^-1, line 4 of Algorithm 4
    assert np.allclose(step.u, resolvent @ (u - beta * phi(model, u)[1]), atol=1e-12)


@pytest.mark.filterwarnings("ignore:Not converged")
@every_model
@every_prior
def test_energy_and_gradient_norm_are_those_of_u(prior, model):
    mode = find_mode(prior, model, method="gradient_flow", start=prior.sample()[0], n_steps=3, tolerance=0)
    root = factor(prior)
    z = np.linalg.lstsq(root, mode.u, rcond=None)[0]
    gradient = approx_fprime(z, lambda z: z @ z / 2 + phi(model, root @ z)[0], 1e-7)
    assert np.isclose(mode.energy, prior.energy(mode.u) + phi(model, mode.u)[0], rtol=1e-10)
    assert np.isclose(mode.gradient_norm, np.linalg.norm(gradient) / np.linalg.norm(z), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("beta", [None, 0.1, 100.0])
@every_model
def test_the_energy_never_rises(model, beta):
    prior, u = PRIORS["approximate"], 3 * PRIORS["approximate"].sample(seed=5)[0]
    settings = {"method": "gradient_flow", "start": u, "beta": beta, "tolerance": 0}
    energies = [find_mode(prior, model, n_steps=n, **settings).energy for n in range(1, 42, 4)]
    assert np.all(np.diff(energies) <= 1e-10)
    assert energies[-1] < energies[0] - 0.1


@every_model
def test_a_fixed_step_reaches_the_same_mode(model):
    prior = PRIORS["project"]
    fixed = find_mode(prior, model, method="gradient_flow", beta=0.1)
    assert np.allclose(fixed.u, find_mode(prior, model).u, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.1, 1e-3, 1e-6])
@every_prior
def test_newton_needs_few_steps_at_any_noise(prior, gamma):
    nodes = LABELED["few"]
    y = np.sign(prior.sample(seed=1)[0][nodes])  # labels that the prior can follow
    mode = find_mode(prior, Probit(nodes, y, gamma=gamma))
    assert mode.converged
    assert mode.n_steps < 40
    assert np.all(y * mode.u[nodes] > 0)


@pytest.mark.parametrize("gamma", [0.1, 1e-3])
def test_newton_needs_few_steps_where_labels_contradict_each_other(gamma):
    nodes = np.arange(N_NODES)  # 24 labels that no combination of 7 modes can follow
    mode = find_mode(PRIORS["project"], Probit(nodes, signs(nodes), gamma=gamma))
    assert mode.converged
    assert mode.n_steps < 10


def test_the_best_ginzburg_landau_mode_is_the_minimum_over_a_grid():
    prior = priors.matern(spectrum(3, seed=2), tau=0.7, alpha=1.0)
    model = GinzburgLandau([0, 1], [1, -1], gamma=1.0, epsilon=0.2)
    precision = np.linalg.inv(covariance(prior))
    axis = np.linspace(-2, 2, 101)
    v = np.array(list(itertools.product(axis, repeat=3)))
    energy = np.sum(v @ precision * v, axis=1) / 2 + np.sum((v**2 - 1) ** 2, axis=1) / (4 * 0.2)
    energy += ((v[:, 0] - 1) ** 2 + (v[:, 1] + 1) ** 2) / 2
    modes = [find_mode(prior, model, start=prior.sample(seed=seed)[0]) for seed in range(30)]
    best = min(modes, key=lambda mode: mode.energy)
    assert all(mode.converged for mode in modes)
    assert np.ptp([mode.energy for mode in modes]) > 0.1  # there are several wells to fall into
    assert 0 <= energy.min() - best.energy < 0.02
    assert np.abs(best.u - v[energy.argmin()]).max() < 0.04


@every_model
def test_flipped_labels_flip_the_mode(model):
    prior = PRIORS["approximate"]
    flipped = replace(model, y=1 - model.y)
    assert np.allclose(find_mode(prior, flipped).u, -find_mode(prior, model).u, atol=1e-8)


class Regression(Model):
    """A user's own model, ``y_j = u_j + eta_j``: its mode is the mean of a Gaussian."""

    def __init__(self, nodes, y, gamma):
        self.nodes, self.y, self.gamma = nodes, y, gamma

    def phi(self, u):
        return jnp.sum((self.y - u) ** 2) / (2 * self.gamma**2)


@every_prior
def test_a_model_of_ones_own_has_the_mode_of_its_closed_form(prior):
    nodes = LABELED["few"]
    y = np.random.default_rng(0).standard_normal(len(nodes))
    mode = find_mode(prior, Regression(nodes, y, 0.4), tolerance=1e-9)
    c = covariance(prior)
    u = c[:, nodes] @ np.linalg.solve(c[np.ix_(nodes, nodes)] + 0.4**2 * np.eye(len(nodes)), y)
    assert np.allclose(mode.u, u, atol=1e-7)
    assert not jax.config.jax_enable_x64  # double precision inside only


def test_a_mode_is_a_start_that_needs_no_steps_and_its_removed_directions_do_not_matter():
    prior, model = PRIORS["project"], MODELS["ginzburg-landau"]
    mode = find_mode(prior, model, start=prior.sample(seed=2)[0])
    again = find_mode(prior, model, start=mode.u + 5 * prior.vectors[:, 0])
    assert again.n_steps == 0
    assert np.allclose(again.u, mode.u, atol=1e-12)


def test_a_flow_cut_short_says_so():
    with pytest.warns(UserWarning, match="Not converged after 2 steps of gradient flow"):
        mode = find_mode(PRIORS["full"], MODELS["ginzburg-landau"], start=PRIORS["full"].sample()[0], n_steps=2)
    assert not mode.converged
    assert mode.gradient_norm > 1e-6
    assert "Raise n_steps" in mode.message


@pytest.mark.parametrize("y", [[1, 0], [2, 0, 1]])
def test_level_set_has_no_mode(y):
    with pytest.raises(TypeError, match="infimum is not attained"):
        find_mode(PRIORS["full"], LevelSet(range(len(y)), y))


# Several fields.


def three_classes(nodes, **settings):
    return Probit(nodes, np.arange(len(nodes)) * 2 % 3, **settings)


def phi_of_three(model, u):
    """Phi of K-class probit by Gauss-Hermite quadrature over the noise of the label's own field."""
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    total = 0.0
    for each, label in zip(u[model.nodes], model.y, strict=True):
        ahead = norm.cdf(points[:, None] + (each[label] - np.delete(each, label)) / model.gamma)
        total -= np.log(weights @ ahead.prod(axis=1) / weights.sum())
    return total


@every_size
@every_prior
def test_newton_and_gradient_flow_agree_on_three_classes(prior, nodes):
    model = three_classes(nodes, gamma=0.3)
    newton = find_mode(prior, model, method="newton", tolerance=1e-10)
    flow = find_mode(prior, model, method="gradient_flow", start=prior.sample(3).T, tolerance=1e-8)
    assert newton.converged
    assert flow.converged
    assert newton.u.shape == (N_NODES, 3)
    np.testing.assert_allclose(flow.u, newton.u, atol=1e-6)
    assert flow.energy == pytest.approx(newton.energy, rel=1e-9)
    energy = sum(prior.energy(field) for field in newton.u.T) + phi_of_three(model, newton.u)
    assert newton.energy == pytest.approx(energy, rel=1e-6)


@every_prior
def test_the_mode_of_three_classes_is_a_minimum(prior):
    """No step along a draw of the prior goes lower, and a wrong Phi would have another minimum."""
    model = three_classes(LABELED["few"], gamma=0.3)
    mode = find_mode(prior, model, tolerance=1e-10)

    def energy(u):
        return sum(prior.energy(field) for field in u.T) + phi_of_three(model, u)

    for direction in np.moveaxis(prior.sample(12, seed=2).reshape(4, 3, -1), 1, 2):
        up, here, down = (energy(mode.u + step * direction) for step in (1e-2, 0.0, -1e-2))
        assert min(up, down) > here
        assert abs(up - down) < 0.05 * (up + down - 2 * here)
    np.testing.assert_allclose(mode.u.sum(axis=1), 0, atol=1e-8)  # only differences are pulled apart


@every_prior
def test_two_fields_have_the_mode_of_their_difference(prior):
    nodes = LABELED["few"]
    half = replace(prior, variances=prior.variances / 2, tail_variance=prior.tail_variance / 2)
    for one, two in (
        (Probit(nodes, signs(nodes), gamma=0.5), Probit(nodes, signs(nodes), gamma=0.5 / np.sqrt(2), n_fields=2)),
        (
            GinzburgLandau(nodes, signs(nodes), gamma=0.5, epsilon=2.0),
            GinzburgLandau(nodes, signs(nodes), gamma=0.5, epsilon=2.0, n_fields=2),
        ),
    ):
        single, double = find_mode(prior, one, tolerance=1e-9), find_mode(half, two, tolerance=1e-9)
        np.testing.assert_allclose(double.u[:, 1] - double.u[:, 0], single.u, atol=1e-6)
        assert double.energy == pytest.approx(single.energy, rel=1e-7)


@pytest.mark.parametrize("method", ["newton", "gradient_flow"])
def test_renamed_classes_rename_the_fields_of_the_mode(method):
    model, order = three_classes(LABELED["few"], gamma=0.3), np.array([2, 0, 1])
    one = find_mode(PRIORS["approximate"], model, method=method, tolerance=1e-9)
    other = find_mode(PRIORS["approximate"], replace(model, y=order[model.y]), method=method, tolerance=1e-9)
    np.testing.assert_allclose(other.u[:, order], one.u, atol=1e-6)


@every_prior
def test_ginzburg_landau_of_three_classes_has_no_gradient_at_its_mode(prior):
    nodes = LABELED["few"]
    model = GinzburgLandau(nodes, [0, 1, 2, 1], gamma=0.5, epsilon=1.0)
    mode = find_mode(prior, model, start=prior.sample(3, seed=3).T, tolerance=1e-9)
    root = factor(prior)
    z = np.linalg.lstsq(root, mode.u, rcond=None)[0]

    def energy(flat):
        with jax.enable_x64(True):
            u = jnp.asarray(root @ flat.reshape(z.shape))
            return float(flat @ flat / 2 + _phi(model, u))

    assert energy(z.ravel()) == pytest.approx(mode.energy, rel=1e-9)
    rng = np.random.default_rng(0)
    for direction in rng.standard_normal((5, z.size)):
        up, down = (energy(z.ravel() + step * direction) for step in (1e-4, -1e-4))
        assert abs(up - down) / 2e-4 < 1e-5 * np.linalg.norm(direction) * max(1.0, np.linalg.norm(z))


@jax.jit
def _phi(model, u):
    return model.phi(u)


def test_starts_of_several_fields():
    prior, model = PRIORS["project"], three_classes(LABELED["few"], gamma=0.3)
    flow = {"method": "gradient_flow", "tolerance": 1e-8}
    drawn, zero = (find_mode(prior, model, start=start, **flow) for start in (prior.sample(3, seed=1).T, None))
    np.testing.assert_allclose(drawn.u, zero.u, atol=1e-5)  # it has one mode
    with pytest.raises(ValueError, match=r"start must have shape \(24, 3\)"):
        find_mode(prior, model, start=np.zeros(N_NODES), **flow)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"method": "bfgs"}, ValueError, "method must be"),
        ({"method": "newton"}, TypeError, "Probit"),
        ({"beta": 0.0}, ValueError, "beta must be"),
        ({"beta": np.inf}, ValueError, "beta must be"),
        ({"n_steps": 0}, ValueError, "n_steps must be"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be"),
        ({"tolerance": np.nan}, ValueError, "tolerance must be"),
        ({"start": "probit"}, TypeError, "start must be"),
        ({"start": np.zeros(3)}, ValueError, "shape"),
        ({"start": np.full(N_NODES, np.nan)}, ValueError, "finite"),
    ],
)
def test_bad_settings_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        find_mode(PRIORS["full"], MODELS["ginzburg-landau"], **settings)


def test_bad_models_are_refused():
    with pytest.raises(TypeError, match="model must be a model with labels"):
        find_mode(PRIORS["full"], [MODELS["probit"]])
    with pytest.raises(ValueError, match="Node 99 is not in the graph"):
        find_mode(PRIORS["full"], Probit([0, 99], [1, -1]))
    with pytest.raises(ValueError, match="newton has neither"):
        find_mode(PRIORS["full"], MODELS["probit"], method="newton", start=np.zeros(N_NODES))


@pytest.mark.parametrize("n_nodes", [3, N_NODES])
def test_newton_is_not_for_a_phi_that_sees_all_nodes(n_nodes):
    """A convex Phi of every node, against the closed form: N(0, C) with u + noise = 1 observed everywhere."""

    class Pull(Model):
        sees_all_nodes = True
        n_fields = 1
        nodes = np.arange(n_nodes)

        def phi(self, u):
            return jnp.sum((u - 1) ** 2) / 2

        def curvature(self):
            return Curvature(1.0, convex=True)

    prior = PRIORS["full"]
    found = find_mode(prior, Pull())
    C = covariance(prior)
    np.testing.assert_allclose(found.u, C @ np.linalg.solve(C + np.eye(N_NODES), np.ones(N_NODES)), atol=1e-5)
    with pytest.raises(TypeError, match="newton is for a model of labeled nodes"):
        find_mode(prior, Pull(), method="newton")
