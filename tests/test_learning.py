from dataclasses import replace

import numpy as np
import pytest
from experiments.hyperprior import Config, averaged, fit, loss, make_cloud
from scipy.optimize import minimize

from graphuq import laplacian, spectrum
from graphuq.hyperprior import Family, Hyperprior, LogNormal
from graphuq.inference.marginals import predict
from graphuq.learning import _composite, _problem, constant_first, learn
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.prior import matern
from tests.oracles import random_spectrum

S = random_spectrum(40, seed=3, scale=0.6)
NODES = np.array([0, 5, 9, 14, 22, 30, 33, 37])
Y = np.where(S.vectors[NODES, 1] > 0, 1.0, -1.0)
THETA = np.log([12.0, 3.0, 0.4, 0.3])
# Two numbers to learn and two held fixed: small enough for a grid.
TWO = Hyperprior(alpha=LogNormal(3.0, 1.0), offset=LogNormal(0.1, 1.0), n_effective=None)


def clusters(sizes, *, seed=0, gap=0.0, modes=None):
    """Spectrum of a graph of Gaussian blobs, joined by weights `gap`; 0 disconnects them."""
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(len(sizes)), sizes)
    points = rng.normal(size=(block.size, 2))
    weights = np.exp(-np.square(points[:, None] - points[None]).sum(-1))
    weights = np.where(block[:, None] == block[None], weights, gap)
    np.fill_diagonal(weights, 0)
    return spectrum.dense(laplacian.normalized(weights), n_modes=modes), block


def differences(function, x, step=1e-5):
    return np.array([(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(x.size)])


@pytest.mark.parametrize("model", [Probit, LevelSet])
def test_gradient_is_that_of_finite_differences(model):
    theta = THETA + (np.log([1, 1, 2, 1]) if model is LevelSet else 0)
    problem = _problem(S, model(NODES, Y), None)
    expected = differences(lambda t: problem.at(t, tolerance=1e-12).log_posterior, theta)
    np.testing.assert_allclose(
        problem.gradient(problem.at(theta, tolerance=1e-12)), expected, rtol=1e-5, atol=1e-6
    )


def test_derivatives_of_variances_and_hyperprior():
    family = Family.of(S, Hyperprior(), Probit(NODES, Y))
    np.testing.assert_allclose(family.jacobian(THETA), differences(family.log_variances, THETA), atol=1e-7)
    expected = differences(family.log_prior, THETA)
    np.testing.assert_allclose(family.log_prior_gradient(THETA), expected, rtol=1e-6)


@pytest.mark.parametrize("normalized", [True, False])
def test_variances_are_those_of_the_matern_prior(normalized):
    weights = np.exp(-np.square(np.subtract.outer(np.arange(12.0), np.arange(12.0))) / 8)
    np.fill_diagonal(weights, 0)
    make = laplacian.normalized if normalized else laplacian.unnormalized
    modes = spectrum.dense(make(weights))
    family = Family.of(modes, Hyperprior(), Probit([0, 11], [1, -1]))
    found = np.exp(family.log_variances(THETA))
    tau, alpha, _, constant = family.hyperparameters(THETA)
    np.testing.assert_allclose(found, matern(modes, tau=tau, alpha=alpha, constant=constant).variances, rtol=1e-9)
    assert found.sum() == pytest.approx(modes.n_nodes)
    assert found[0] / found[1:].sum() == pytest.approx(np.exp(THETA[3]))


@pytest.mark.parametrize("m", [1, 2, 4])
def test_composite_rule_is_exact_to_degree_three(m):
    points, weights = _composite(m)
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(np.einsum("k,ki,kj,kl", weights, points, points, points), 0, atol=1e-12)


def test_peak_is_that_of_brute_force():
    learned = learn(S, Probit(NODES, Y), average=False)
    problem = _problem(S, Probit(NODES, Y), None)
    runs = [
        minimize(
            lambda t: -problem.at(t, tolerance=1e-9).log_posterior, problem.family.mean + s, method="Nelder-Mead"
        )
        for s in (0.0, 0.7)
    ]
    best = min(runs, key=lambda run: run.fun)
    assert problem.at(learned.points[0].theta).log_posterior == pytest.approx(-best.fun, abs=1e-3)
    np.testing.assert_allclose(learned.points[0].theta, best.x, atol=0.05)


def test_average_is_that_of_a_dense_grid():
    """Over diffusion and gamma; the peak alone is several times further off."""
    model = Probit(NODES, Y)
    learned = learn(S, model, hyperprior=TWO)
    problem = _problem(S, model, TWO)
    axes = [problem.family.mean[i] + problem.family.deviation[i] * np.linspace(-4, 4, 41) for i in (0, 2)]
    log_weights, probabilities = [], []
    for a in axes[0]:
        for b in axes[1]:
            theta = problem.family.mean.copy()
            theta[[0, 2]] = a, b
            point = problem.at(theta, tolerance=1e-6)
            log_weights.append(point.log_posterior)
            rows = S.vectors[:, : point.variances.size] * np.sqrt(point.variances)
            probabilities.append(predict(point.fit, rows).probability)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    expected = weights @ np.array(probabilities) / weights.sum()
    others = np.setdiff1d(np.arange(40), NODES)
    error = np.abs(learned.predict(others).probability - expected[others]).mean()
    alone = np.abs(learn(S, model, hyperprior=TWO, average=False).predict(others).probability - expected[others])
    assert error < 0.01
    assert error < alone.mean() / 2


def test_experiment_averages_as_learning_does():
    """A cloud of 512 points reweighted by the default hyperprior, against 25 points around the peak."""
    y = np.where(S.vectors[:, 1] > 0, 1, -1)
    config = Config(n_test=32)
    cloud = make_cloud(S, y, NODES, Y, config=config, task="small", setting=0)
    test = np.random.default_rng(config.seed).permutation(np.setdiff1d(np.arange(40), NODES))
    found = learn(S, Probit(NODES, Y)).predict(test).probability
    right = np.where(y[test] > 0, found, 1 - found)
    assert np.abs(averaged(cloud, Hyperprior())[0] - right).mean() < 0.02
    fitted = fit([cloud], replace(config, n_iterations=2))
    assert loss([cloud], fitted, config) <= loss([cloud], Hyperprior(), config)


def test_result_can_be_sampled_and_reports_its_spread():
    learned = learn(S, Probit(NODES, Y))
    assert learned.model.gamma == learned.hyperparameters.gamma
    tau, alpha, _, constant = learned.hyperparameters
    same = matern(S, tau=tau, alpha=alpha, constant=constant)
    np.testing.assert_allclose(learned.prior.variances, same.variances, rtol=1e-9)
    assert learned.weights.sum() == pytest.approx(1)
    log_gamma = np.array([point.theta[2] for point in learned.points])
    spread = np.sqrt(learned.weights @ (log_gamma - learned.weights @ log_gamma) ** 2)
    assert learned.log_deviations.gamma == pytest.approx(spread)
    assert 0.1 < spread < np.log(Hyperprior().gamma.factor)  # the labels say something, not everything
    assert learned.converged


def test_fixed_numbers_stay():
    learned = learn(S, Probit(NODES, Y), hyperprior=TWO)
    assert learned.hyperparameters.alpha == pytest.approx(3.0)
    assert learned.log_deviations.alpha == pytest.approx(0, abs=1e-12)
    every = LogNormal(1.0, 1.0)
    one = learn(S, Probit(NODES, Y), hyperprior=Hyperprior(every, every, every, every))
    assert len(one.points) == 1


def test_flipped_labels_flip_probabilities_and_nodes_can_be_chosen():
    learned, flipped = learn(S, Probit(NODES, Y)), learn(S, Probit(NODES, -Y))
    found = learned.predict()
    np.testing.assert_allclose(found.probability, 1 - flipped.predict().probability, atol=1e-4)
    some = np.array([7, 22, 3, 0])
    for all_nodes, few in zip(found, learned.predict(some), strict=True):
        np.testing.assert_allclose(all_nodes[some], few, rtol=1e-9)
    others = np.setdiff1d(np.arange(40), NODES)
    np.testing.assert_allclose(learned.predict_rows(S.vectors[others]).probability, found.probability[others])
    np.testing.assert_allclose(found.probability[NODES], learned.labeled_probability())


def test_leave_one_out_is_what_the_other_labels_say():
    """With everything fixed, against expectation propagation without the label."""
    fixed = Hyperprior(*(LogNormal(value, 1.0) for value in np.exp(THETA)))
    found = learn(S, Probit(NODES, Y), hyperprior=fixed).leave_one_out()
    for j, node in enumerate(NODES):
        rest = np.delete(np.arange(NODES.size), j)
        without = learn(S, Probit(NODES[rest], Y[rest]), hyperprior=fixed)
        assert without.predict([node]).probability[0] == pytest.approx(found[j], abs=0.02)


def test_twice_the_modes_barely_move_the_probabilities():
    modes, block = clusters([60, 60], gap=0.02)
    y = np.where(block == 0, 1.0, -1.0)
    nodes = np.random.default_rng(0).choice(120, 16, replace=False)
    few, many = (learn(modes.truncate(n), Probit(nodes, y[nodes])).predict().probability for n in (40, 80))
    assert np.abs(few - many).mean() < 0.01


def test_constant_mode_comes_first_on_a_disconnected_graph():
    modes, _ = clusters([20, 12, 8])
    turned = constant_first(modes)
    q0 = np.sqrt(modes.degrees / modes.degrees.sum())
    np.testing.assert_allclose(turned.vectors[:, 0], q0, atol=1e-10)
    np.testing.assert_allclose(turned.vectors.T @ turned.vectors, np.eye(40), atol=1e-10)
    before, after = modes.vectors[:, :3], turned.vectors[:, :3]
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-10)
    assert constant_first(S) is S


def test_labels_on_one_component_warn_and_stay_finite():
    modes, block = clusters([20, 20])
    nodes = np.flatnonzero(block == 0)[:6]
    y = np.where(modes.vectors[nodes, 2] > 0, 1.0, -1.0)
    y[0] = -y[1]
    with pytest.warns(UserWarning, match="20 nodes lie in components"):
        learned = learn(modes, Probit(nodes, y))
    found = learned.predict()
    assert all(np.isfinite(each).all() for each in found)
    assert np.abs(found.probability[block == 1] - 0.5).max() < 0.25


@pytest.mark.parametrize("model", [Probit, LevelSet])
def test_separable_labels_are_bounded(model):
    modes, block = clusters([30, 30], gap=1e-4)
    nodes = np.arange(0, 60, 3)
    learned = learn(modes, model(nodes, np.where(block[nodes] == 0, 1.0, -1.0)))
    found = learned.predict()
    assert all(np.isfinite(each).all() for each in found)
    assert learned.hyperparameters.gamma >= 1e-3
    assert ((found.probability > 0.9) == (block == 0)).all()


@pytest.mark.parametrize("n_labels", [1, 5])
def test_one_class_only(n_labels):
    with pytest.warns(UserWarning, match="one class only"):
        model = Probit(NODES[:n_labels], np.ones(n_labels))
    found = learn(S, model).predict()
    assert all(np.isfinite(each).all() for each in found)
    assert found.probability[NODES[0]] > 0.5


def test_duplicated_points_with_opposite_labels():
    rng = np.random.default_rng(1)
    points = np.repeat(rng.normal(size=(15, 2)), 2, axis=0)
    weights = np.exp(-np.square(points[:, None] - points[None]).sum(-1) * 4)
    np.fill_diagonal(weights, 0)
    modes = spectrum.dense(laplacian.normalized(weights))
    nodes = np.arange(0, 12)
    learned = learn(modes, Probit(nodes, np.where(nodes % 2 == 0, 1.0, -1.0)))
    found = learned.predict()
    assert all(np.isfinite(each).all() for each in found)
    assert np.abs(found.probability[12:] - 0.5).max() < 0.2


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match="Probit and LevelSet"):
        learn(S, GinzburgLandau(NODES, Y))
    with pytest.raises(ValueError, match="Node 40 is not in the graph"):
        learn(S, Probit([0, 40], [1, -1]))
    with pytest.raises(ValueError, match="one mode only"):
        learn(S.truncate(1), Probit(NODES, Y))
    with pytest.raises(ValueError, match="factor at least 1"):
        LogNormal(1.0, 0.5)
    with pytest.raises(ValueError, match="fix these two"):
        Hyperprior(n_effective=LogNormal(2.0, 1.0))
    learned = learn(S, Probit(NODES, Y), average=False)
    with pytest.raises(ValueError, match="between 0 and 39"):
        learned.predict([40])
    with pytest.raises(ValueError, match="40 columns"):
        learned.predict_rows(np.ones((2, 3)))
