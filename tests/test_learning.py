"""Learning: the evidence's gradient, its peak, and the average around it, against differences, searches and grids."""

from contextlib import nullcontext
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from experiments.hyperprior import Config, averaged, fit, loss, make_cloud
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.datasets import load_wine, make_moons

from graphuq import GraphClassifier, calibration, graph, laplacian, spectrum
from graphuq.feature_piece import FeaturePiece
from graphuq.inference.independence import sample_independently
from graphuq.inference.star_ep import StarSites
from graphuq.learning import Hyperparameters, Hyperprior, LogNormal, learn
from graphuq.learning.averaging import alone, around, axes_of, axial, bound, climb, with_all_labels
from graphuq.learning.evidence import AS_NOISE, constant_first, problems
from graphuq.learning.hyperprior import BOUNDS, GRAPH, Family
from graphuq.learning.learned import Weighed, _deviations
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.posterior import GaussianPosterior
from graphuq.posterior.mixture import Mixture
from graphuq.prior import GaussianPrior, matern
from tests.oracles import random_spectrum

S = random_spectrum(40, seed=3, scale=0.6)
NODES = np.array([0, 5, 9, 14, 22, 30, 33, 37])
OTHERS = np.setdiff1d(np.arange(40), NODES)
Y = (S.vectors[NODES, 1] > 0).astype(int)
NODES3 = np.array([0, 3, 5, 9, 12, 14, 18, 22, 26, 30, 33, 37])
Y3 = np.argmax(S.vectors[NODES3, 1:4], axis=1)
FEATURES = np.random.default_rng(0).normal(size=(40, 3))
FEATURES /= np.sqrt(np.square(FEATURES).sum(axis=1).mean())
# Nothing fixed, mistakes on.
OPEN = Hyperprior(
    diffusion=LogNormal(12.0, 3.0),
    alpha=LogNormal(3.0, 2.0),
    graph=LogNormal(2.5, 3.0),
    linear=LogNormal(0.8, 3.0),
    constant=LogNormal(0.6, 2.0),
    mistakes=LogNormal(0.05, 2.0),
    gamma=LogNormal(0.9, 1.5),
)
MODELS = {
    "two classes": Probit(NODES, Y),
    "level-set": LevelSet(NODES, Y),
    "three classes": Probit(NODES3, Y3),
    "two fields": Probit(NODES, Y, n_fields=2),
}


def fixed(**medians):
    """Every number fixed: at those of OPEN, or at these."""
    values = {name: LogNormal(getattr(OPEN, name).median, 1.0) for name in BOUNDS}
    return Hyperprior(
        **values | {name: LogNormal(value, 1.0) for name, value in medians.items()}, n_effective=None
    )


def believed(name):
    """OPEN, without mistakes for level-set, whose gamma stands for them."""
    return replace(OPEN, mistakes=None) if name == "level-set" else OPEN


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


# The evidence


@pytest.mark.parametrize("name", MODELS)
def test_gradient_is_that_of_finite_differences(name):
    """Of the graph alone, the features alone, linear or bent, and both; along every coordinate that is there."""
    for problem in problems(S, MODELS[name], FEATURES, believed(name), n_bent=1):
        free = problem.family.free
        theta = problem.family.mean + 0.1 * problem.family.deviation
        expected = differences(lambda t, at=problem.at: at(t, tolerance=1e-12).log_posterior, theta)
        found = problem.gradient(problem.at(theta, tolerance=1e-12))
        np.testing.assert_allclose(found[free], expected[free], rtol=1e-5, atol=1e-6)
        assert not found[~free].any()
        assert (np.abs(found[free]) > 1e-6).all()


def test_derivatives_of_variances_and_hyperprior():
    for structure in OPEN.structures(n_linear=3, n_bent=2):
        family = Family.of(S, structure, n_linear=3, n_bent=2)
        theta = family.mean + 0.3 * family.deviation
        np.testing.assert_allclose(family.jacobian(theta), differences(family.log_variances, theta).reshape(len(BOUNDS), -1), atol=1e-7)  # fmt: skip
        expected = differences(family.log_prior, theta)
        np.testing.assert_allclose(family.log_prior_gradient(theta), np.where(family.free, expected, 0), rtol=1e-6)


@pytest.mark.parametrize("normalized", [True, False])
def test_the_graphs_variances_are_those_of_the_matern_prior(normalized):
    weights = np.exp(-np.square(np.subtract.outer(np.arange(12.0), np.arange(12.0))) / 8)
    np.fill_diagonal(weights, 0)
    make = laplacian.normalized if normalized else laplacian.unnormalized
    modes = spectrum.dense(make(weights))
    structure, _ = OPEN.structures()
    family = Family.of(modes, structure)
    found, numbers = np.exp(family.log_variances(family.mean)), family.hyperparameters(family.mean)
    expected = matern(modes, tau=numbers.tau, alpha=numbers.alpha, constant=0.0).variances[1:]
    np.testing.assert_allclose(found[1:], numbers.graph**2 * expected, rtol=1e-9)
    assert found[0] == pytest.approx(numbers.constant**2 * (1 + numbers.graph**2))
    assert (numbers.linear, numbers.bent, numbers.gamma) == (0.0, 0.0, pytest.approx(0.9))
    assert numbers.mistakes == pytest.approx(0.05 / 1.05)


def dense_prior(numbers, features, n_bent=0):
    """``kappa^2 (1 + a^2 + b^2) 1 1^T + a^2 X X^T + b^2 C``, C the matern covariance without its constant."""
    level = numbers.constant**2 * (1 + numbers.linear**2 + numbers.bent**2 + numbers.graph**2)
    smooth = matern(S, tau=numbers.tau, alpha=numbers.alpha, constant=0.0)
    columns = np.hstack([np.ones((40, 1)), features, S.vectors[:, 1:]])
    variances = np.concatenate(
        [
            [level],
            np.repeat([numbers.bent**2, numbers.linear**2], [n_bent, features.shape[1] - n_bent]),
            numbers.graph**2 * smooth.variances[1:],
        ]
    )
    return GaussianPrior(columns, variances)


@pytest.mark.parametrize("n_bent", [0, 1])
@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_pieces_are_weighed_by_their_evidence(name, n_bent):
    """With every number fixed, against expectation propagation under the dense sum of the pieces.

    Where there are bent columns, what bends has 0.8 of the features' variance, and linear and bent structures together
    weigh as much as the graph alone does; a constant alone weighs a fifth of that.
    """
    model = MODELS[name]
    learned = learn(S, model, features=FEATURES, n_bent=n_bent, hyperprior=fixed())
    evidence, probability = [], []
    parts = [(1.0, 0.0), (np.sqrt(0.2), np.sqrt(0.8))][: 1 + n_bent]
    structures = [(1, 0.0, 0.0), *((use_graph, *part) for use_graph in (0, 1) for part in parts), (0, 0.0, 0.0)]
    for use_graph, linear, bent in structures:
        numbers = learned.hyperparameters._replace(
            tau=np.sqrt(3.0 / 12.0), graph=2.5 * use_graph, linear=0.8 * linear, bent=0.8 * bent
        )
        same = replace(model, gamma=0.9, delta=0.05 / 1.05)
        dense = GaussianPosterior.of(dense_prior(numbers, FEATURES, n_bent), same)
        evidence.append(dense.fit.log_evidence - np.log(1 + n_bent if linear else 1 if use_graph else 5))
        probability.append(dense.classes(OTHERS, noise=False).probability)
    shares = np.exp(np.array(evidence) - max(evidence))
    shares /= shares.sum()
    assert len(learned.posterior.weights) == np.count_nonzero(shares > 0.01)
    np.testing.assert_allclose(learned.posterior.weights, np.sort(shares[shares > 0.01])[::-1], rtol=0.03)
    expected = np.tensordot(shares, np.array(probability), 1)
    np.testing.assert_allclose(
        learned.posterior.classes(OTHERS, noise=False).probability,
        expected,
        atol=0.01 if name == "two classes" else 0.03,
    )
    best = structures[int(np.argmax(evidence))]
    assert learned.log_evidence == pytest.approx(max(evidence) + np.log(1 + n_bent if best[1] else 1), abs=1e-4)


def test_bent_columns_that_are_left_out_change_nothing():
    """Linear structures then have their whole weight."""
    hyperprior = replace(OPEN, bent=None)
    with_bent = problems(S, MODELS["two classes"], FEATURES, hyperprior, n_bent=1)
    without = problems(S, MODELS["two classes"], FEATURES[:, 1:], hyperprior)
    assert len(with_bent) == len(without) == 4
    for one, other in zip(with_bent, without, strict=True):
        np.testing.assert_array_equal(one.basis, other.basis)
        assert one.family.log_weight == other.family.log_weight == (np.log(0.2) if one is with_bent[-1] else 0)
        assert one.family.log_prior(one.family.mean) == other.family.log_prior(other.family.mean)


def test_two_fields_have_the_evidence_of_one():
    """The difference of two fields has twice their variance, and twice their noise: the same odds."""
    hyperprior = replace(fixed(), mistakes=None, constant_alone=None)
    one, two = (learn(S, Probit(NODES, Y, n_fields=n), hyperprior=hyperprior) for n in (1, 2))
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-5)
    (mean, variance), fields_ = one.posterior.moments(), two.posterior.moments()[0]
    np.testing.assert_allclose((fields_[:, 1] - fields_[:, 0]) / np.sqrt(2), mean[:, 0], atol=1e-4)
    # one field is told with the skewness of its posterior, two as a Gaussian
    odds = ndtr(mean[:, 0] / np.sqrt(variance[:, 0] + 0.9**2))
    np.testing.assert_allclose(two.posterior.probability()[:, 1], odds, atol=1e-4)
    np.testing.assert_allclose(one.posterior.probability()[:, 1], odds, atol=0.05)


# The peak


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_the_peak_is_that_of_brute_force(name):
    """Of each structure; and no lower than where the climb began."""
    hyperprior = replace(OPEN, alpha=LogNormal(3.0, 1.0), gamma=LogNormal(1.0, 1.0), mistakes=None)
    for problem in problems(S, MODELS[name], FEATURES, hyperprior):
        peak, free = climb(problem), problem.family.free
        assert peak.log_posterior >= problem.at(problem.family.mean).log_posterior

        def downhill(x, problem=problem, free=free):
            theta = problem.family.mean.copy()
            theta[free] = x
            return -problem.at(theta, tolerance=1e-8).log_posterior

        best = minimize(downhill, problem.family.mean[free], method="Nelder-Mead", options={"fatol": 1e-4})
        assert peak.log_posterior == pytest.approx(-best.fun, abs=0.01)


def test_fixed_numbers_stay_fixed():
    some = replace(OPEN, alpha=LogNormal(3.0, 1.0), gamma=LogNormal(1.2, 1.0), constant=LogNormal(0.4, 1.0))
    for model in (MODELS["two classes"], MODELS["three classes"]):
        learned = learn(S, model, features=FEATURES, hyperprior=replace(some, mistakes=None))
        found = learned.hyperparameters
        assert (found.alpha, found.gamma, found.constant) == pytest.approx((3.0, 1.2, 0.4))
        assert found.mistakes == 0
        spread = learned.log_deviations
        assert (spread.alpha, spread.gamma, spread.constant) == pytest.approx((0, 0, 0), abs=1e-12)
        assert spread.tau > 0
        assert learned.model.gamma == pytest.approx(1.2)
    one = learn(S, MODELS["two classes"], hyperprior=replace(fixed(), constant_alone=None))
    assert one.posterior.weights.tolist() == [1.0]


def test_without_features_there_is_no_linear_piece():
    for model in (MODELS["two classes"], MODELS["three classes"]):
        without = learn(S, model)
        ruled_out = learn(S, model, features=FEATURES, hyperprior=replace(model.hyperprior(), linear=None))
        assert without.hyperparameters == ruled_out.hyperparameters
        assert without.hyperparameters.linear == 0
        assert np.array_equal(without.posterior.weights, ruled_out.posterior.weights)
        assert np.array_equal(without.posterior.probability(), ruled_out.posterior.probability())


def test_a_slope_is_learned_where_there_is_one():
    """Labels that follow a feature, and have nothing to do with the graph."""
    slope = FEATURES[:, 0] > 0
    nodes = np.arange(0, 40, 2)
    learned = learn(S, Probit(nodes, slope[nodes].astype(int)), features=FEATURES)
    assert learned.hyperparameters.linear > 0
    right = (learned.posterior.label_mean() > 0) == slope
    assert right[1::2].mean() > 0.8
    with pytest.warns(UserWarning, match="Neither the graph nor the features"):
        alone = learn(S, Probit(nodes, slope[nodes].astype(int)))
    assert right[1::2].mean() > ((alone.posterior.label_mean() > 0) == slope)[1::2].mean()
    assert learned.log_evidence > alone.log_evidence


# The average


@pytest.mark.parametrize("m", [1, 2, 4])
def test_rule_of_the_average_is_exact_to_degree_three(m):
    points, weights = axial(m)
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(np.einsum("k,ki,kj,kl", weights, points, points, points), 0, atol=1e-12)


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_the_average_is_that_of_a_dense_grid(name):
    """Over the deviation of the graph's piece alone; the peak alone is further off."""
    one = replace(fixed(), graph=LogNormal(2.5, 3.0), linear=None, mistakes=None, constant_alone=None)
    model = MODELS[name]
    learned = learn(S, model, hyperprior=one)
    (problem,) = problems(S, model, None, one)
    (free,) = np.flatnonzero(problem.family.free)
    log_weights, probability = [], []
    for x in np.linspace(-4, 4, 81):
        theta = problem.family.mean.copy()
        theta[free] += x * problem.family.deviation[free]
        point = problem.at(theta, tolerance=1e-6)
        log_weights.append(point.log_posterior)
        probability.append(problem.posterior(point).classes(OTHERS, noise=False).probability)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    weights /= weights.sum()
    expected = np.tensordot(weights, np.array(probability), 1)
    peak = learn(S, model, hyperprior=one, average=False)
    error, alone = (
        np.abs(each.posterior.classes(OTHERS, noise=False).probability - expected).mean()
        for each in (learned, peak)
    )
    assert error < 0.01
    assert error < alone / 2
    # and of the number itself
    log_graph = np.linspace(-4, 4, 81) * problem.family.deviation[free]
    spread = np.sqrt(weights @ (log_graph - weights @ log_graph) ** 2)
    assert learned.log_deviations.graph == pytest.approx(spread, rel=0.1)
    assert peak.log_deviations.graph == pytest.approx(
        spread, rel=0.25
    )  # a point alone, as wide as the curvature says
    assert peak.log_deviations._replace(graph=0.0) == pytest.approx(np.zeros(8), abs=1e-12)


def test_experiment_averages_as_learning_does():
    """A cloud of 512 points reweighted by the default hyperprior, against a few points around the peak."""
    y = np.where(S.vectors[:, 1] > 0, 1, -1)
    config = Config(n_test=32)
    cloud = make_cloud(S, y, NODES, y[NODES], config=config, task="small", setting=0)
    test = np.random.default_rng(config.seed).permutation(OTHERS)
    graph_alone = replace(Hyperprior(), constant_alone=None)
    found = learn(S, Probit(NODES, Y), hyperprior=graph_alone).posterior.classes(test, noise=False).probability
    right = np.where(y[test] > 0, found[:, 1], found[:, 0])
    assert np.abs(averaged(cloud, Hyperprior())[0] - right).mean() < 0.02
    fitted = fit([cloud], replace(config, n_iterations=2))
    assert loss([cloud], fitted, config) <= loss([cloud], Hyperprior(), config)


def test_what_a_point_lacks_is_no_part_of_a_spread():
    """Graph and tau known exactly wherever there is a graph; linear within a factor of 2, weights 1 to 3."""
    found = [
        Hyperparameters(
            tau=0.3, alpha=8.0, graph=12.0, linear=0.0, bent=0.0, constant=0.5, mistakes=0.0, gamma=1.0
        ),
        Hyperparameters(
            tau=0.7, alpha=8.0, graph=0.0, linear=1.0, bent=2.0, constant=0.5, mistakes=0.01, gamma=1.0
        ),
        Hyperparameters(
            tau=0.3, alpha=8.0, graph=12.0, linear=4.0, bent=0.0, constant=0.5, mistakes=0.01, gamma=1.0
        ),
    ]
    points = [Weighed("one", SimpleNamespace(hyperparameters=each), 0.0, np.full(8, 0.3)) for each in found]
    spread = _deviations(points, np.array([0.2, 0.6, 0.2]))
    assert spread._replace(linear=0.0) == pytest.approx(np.zeros(8), abs=1e-12)
    assert spread.linear == pytest.approx(np.log(4) * np.sqrt(0.75 * 0.25))
    alone = _deviations(points[1:2], np.ones(1))  # it stands for all around it: what it has is as wide as its peak
    assert alone == pytest.approx([0, 0, 0, 0.3, 0.3, 0.3, 0.3, 0.3])


def test_result_can_be_sampled_and_reports_its_spread():
    learned = learn(S, Probit(NODES, Y), features=FEATURES)
    assert learned.model.gamma == learned.hyperparameters.gamma
    assert learned.model.delta == learned.hyperparameters.mistakes
    assert learned.posterior.weights.sum() == pytest.approx(1)
    assert np.all(np.diff(learned.posterior.weights) <= 0)
    assert learned.converged
    draws = sample_independently(learned.prior, learned.model, n_steps=2000, seed=0)
    quick = GaussianPosterior.of(learned.prior, learned.model)
    assert quick.fit.log_evidence == pytest.approx(learned.log_evidence, abs=1e-5)
    assert np.abs(draws.label_mean() - quick.label_mean()).mean() < 0.05
    spread = learned.log_deviations.tau
    assert 0.05 < spread < np.log(Hyperprior().diffusion.factor)  # the labels say something, not everything


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_leave_one_out_is_what_the_other_labels_say(name):
    """With everything fixed, against expectation propagation without the label."""
    model, numbers = MODELS[name], replace(fixed(), mistakes=None)
    left_out = learn(S, model, hyperprior=numbers).posterior.components[0].left_out()
    expected = []
    for j, node in enumerate(model.nodes):
        rest = np.delete(np.arange(model.nodes.size), j)
        without = learn(S, replace(model, nodes=model.nodes[rest], y=model.y[rest]), hyperprior=numbers)
        expected.append(without.posterior.components[0].probability([node])[0])
    error = np.abs(left_out - np.array(expected))
    assert error.mean() < 0.02
    assert error.max() < 0.06


def test_leaving_a_wrong_label_out_gives_no_weight_to_what_took_it_for_right():
    """Of the average, where labels may be mistakes: against the average without the label."""
    rng = np.random.default_rng(5)
    y = np.arange(120) % 2
    X = rng.normal(size=(120, 2)) + 3.5 * y[:, None] * [1, 0]
    S = spectrum.dense(laplacian.normalized(graph.knn(X, n_neighbors=6)))
    nodes, given = np.arange(40), y[:40].copy()
    given[:2] = 1 - given[:2]
    posterior = learn(S, Probit(nodes, given)).posterior
    wrong = posterior.left_out()[[0, 1], given[:2]]
    without = [posterior.with_labels(np.delete(nodes, j), np.delete(given, j)) for j in range(2)]
    expected = [each.probability([j])[0, given[j]] for j, each in enumerate(without)]
    assert np.abs(np.log(wrong / expected)).max() < 0.7  # 1.5 were mistakes forgotten


def test_the_numbers_told_are_those_of_the_structure_that_weighs_most():
    """Wine from twenty labels: the peak of the features alone is the highest, and the graph alone weighs most."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    nodes = np.random.default_rng(2).permutation(len(y))[:20]
    S = spectrum.dense(laplacian.normalized(graph.knn(X, n_neighbors=5)))
    piece = FeaturePiece.of(X)
    learned = learn(S, Probit(nodes, y[nodes]), features=piece.columns(X))
    weights = dict.fromkeys([(True, False), (False, True), (True, True)], 0.0)
    for weight, each in zip(learned.posterior.weights, learned.posterior.components, strict=True):
        weights["matern" in each.prior.name, "linear" in each.prior.name] += weight
    told = learned.hyperparameters.graph > 0, learned.hyperparameters.linear > 0
    assert weights[told] == max(weights.values()) < 0.9
    assert ("matern" in learned.prior.name, "linear" in learned.prior.name) == told
    alone = learn(S, Probit(nodes, y[nodes]), features=piece.columns(X), average=False)
    assert (alone.hyperparameters.graph > 0, alone.hyperparameters.linear > 0) == told


def test_many_classes_get_a_temperature_from_labels_left_out():
    assert learn(S, MODELS["two classes"]).posterior.temperature == 1
    found = learn(S, MODELS["three classes"]).posterior
    plain = replace(found, temperature=1.0)
    assert found.temperature != 1
    # p^(1/T), and T makes the labels more probable than 1 does, as far as the belief about T goes
    np.testing.assert_allclose(found.probability(), calibration.apply_temperature(plain.probability(), found.temperature), atol=1e-9)  # fmt: skip
    assert np.array_equal(found.classes(noise=False).probability, plain.classes(noise=False).probability)
    losses = [calibration.log_loss(each.left_out(), Y3) for each in (found, plain)]
    assert losses[0] < losses[1] + np.log(1 / 0.7) ** 2 / 2 / np.log(1.35) ** 2 / len(Y3)


# Symmetries


def test_flipped_labels_flip_probabilities():
    learned, flipped = (learn(S, Probit(NODES, y), features=FEATURES).posterior for y in (Y, 1 - Y))
    np.testing.assert_allclose(learned.probability(), flipped.probability()[:, ::-1], atol=1e-3)
    some = np.array([7, 22, 3, 0])
    np.testing.assert_allclose(learned.probability()[some], learned.probability(some), rtol=1e-9)


def test_permuted_classes_permute_probabilities():
    order = np.array([2, 0, 1])
    learned, turned = (learn(S, Probit(NODES3, y), features=FEATURES) for y in (Y3, order[Y3]))
    assert turned.log_evidence == pytest.approx(learned.log_evidence, abs=1e-3)
    np.testing.assert_allclose(
        turned.posterior.probability()[:, order], learned.posterior.probability(), atol=0.01
    )


def test_permuted_nodes_permute_probabilities():
    order = np.random.default_rng(1).permutation(40)
    turned = replace(S, vectors=S.vectors[order], degrees=S.degrees[order])
    place = np.argsort(order)
    found = learn(turned, Probit(place[NODES3], Y3), features=FEATURES[order]).posterior
    expected = learn(S, Probit(NODES3, Y3), features=FEATURES).posterior
    np.testing.assert_allclose(found.probability()[place], expected.probability(), atol=1e-3)


def test_twice_the_modes_barely_move_the_probabilities():
    modes, block = clusters([60, 60], gap=0.02)
    nodes = np.random.default_rng(0).choice(120, 16, replace=False)
    few, many = (
        learn(modes.truncate(n), Probit(nodes, block[nodes])).posterior.classes(noise=False).probability
        for n in (40, 80)
    )
    assert np.abs(few - many).mean() < 0.01


# Hard cases


def test_constant_mode_comes_first_on_a_disconnected_graph():
    modes, _ = clusters([20, 12, 8])
    turned = constant_first(modes)
    q0 = np.sqrt(modes.degrees / modes.degrees.sum())
    np.testing.assert_allclose(turned.vectors[:, 0], q0, atol=1e-10)
    np.testing.assert_allclose(turned.vectors.T @ turned.vectors, np.eye(40), atol=1e-10)
    before, after = modes.vectors[:, :3], turned.vectors[:, :3]
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-10)
    assert constant_first(S) is S


@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_on_one_component_warn_and_stay_finite(n_classes):
    modes, block = clusters([20, 20])
    nodes = np.flatnonzero(block == 0)[:6]
    chance = pytest.warns(UserWarning, match="Neither the graph nor the features")
    with chance, pytest.warns(UserWarning, match="20 rows lie in parts"):
        learned = learn(modes, Probit(nodes, np.arange(6) % n_classes))
    found = learned.posterior.probability()
    assert np.isfinite(found).all()
    assert np.abs(found[block == 1] - 1 / n_classes).max() < 0.25


@pytest.mark.parametrize("model", [Probit, LevelSet])
def test_separable_labels_are_bounded(model):
    modes, block = clusters([30, 30], gap=1e-4)
    nodes = np.arange(0, 60, 3)
    learned = learn(modes, model(nodes, block[nodes]))
    found = learned.posterior.probability()
    assert np.isfinite(found).all()
    assert ((found[:, 1] > 0.9) == (block == 1)).all()
    numbers = learned.hyperparameters._asdict()
    for name in BOUNDS.keys() & numbers.keys():
        assert numbers[name] == 0 or BOUNDS[name][0] <= numbers[name] <= BOUNDS[name][1]


@pytest.mark.filterwarnings("ignore:The labels drive")
@pytest.mark.parametrize("n_labels", [1, 5])
def test_one_class_only(n_labels):
    with pytest.warns(UserWarning, match="one class only"):
        model = Probit(NODES[:n_labels], np.ones(n_labels))
    found = learn(S, model).posterior.probability()
    assert np.isfinite(found).all()
    assert found[NODES[0], 1] > 0.5


def test_a_class_without_a_label_is_not_ruled_out():
    found = learn(S, Probit(NODES, Y, n_classes=3)).posterior.probability()
    assert found.shape == (40, 3)
    assert (found[:, 2] > 0).all()
    assert found[NODES, 2].max() < 0.5


def test_duplicated_points_with_opposite_labels():
    rng = np.random.default_rng(1)
    points = np.repeat(rng.normal(size=(15, 2)), 2, axis=0)
    weights = np.exp(-np.square(points[:, None] - points[None]).sum(-1) * 4)
    np.fill_diagonal(weights, 0)
    modes = spectrum.dense(laplacian.normalized(weights))
    nodes = np.arange(0, 12)
    with pytest.warns(UserWarning, match="Neither the graph nor the features"):
        found = learn(modes, Probit(nodes, nodes % 2)).posterior.probability()
    assert np.isfinite(found).all()
    assert np.abs(found[12:, 1] - 0.5).max() < 0.2


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match="GinzburgLandau offers no sites"):
        learn(S, GinzburgLandau(NODES, Y))
    with pytest.raises(TypeError, match="LevelSet offers no sites"):
        learn(S, LevelSet(NODES3, Y3))
    with pytest.raises(ValueError, match="Node 40 is not in the graph"):
        learn(S, Probit([0, 40], [0, 1]))
    with pytest.raises(ValueError, match="one mode only"):
        learn(S.truncate(1), Probit(NODES, Y))
    with pytest.raises(ValueError, match="factor at least 1"):
        LogNormal(1.0, 0.5)
    with pytest.raises(ValueError, match="fix these two"):
        Hyperprior(n_effective=LogNormal(2.0, 1.0))
    with pytest.raises(ValueError, match="one of them is needed"):
        Hyperprior(graph=None, linear=None, constant_alone=None)
    with pytest.raises(ValueError, match="constant_alone must be a finite number above 0"):
        Hyperprior(constant_alone=0.0)
    with pytest.raises(ValueError, match="linear, which needs features"):
        learn(S, Probit(NODES, Y), hyperprior=Hyperprior(graph=None, constant_alone=None))
    assert {field.name for field in fields(Hyperprior)} >= set(BOUNDS)


@pytest.mark.filterwarnings("ignore:Neither the graph")
def test_modes_on_demand_are_as_many_as_carry_weight():
    """Two halves of a ring need few waves. Labels that alternate are not explained by few: those all are tried."""
    ring = np.abs(np.subtract.outer(np.arange(400), np.arange(400)))
    L = laplacian.normalized(np.where(np.minimum(ring, 400 - ring) <= 2, 1.0, 0.0))
    whole, asked = spectrum.dense(L, n_modes=160), []

    def more(found):
        asked.append(found.n_modes)
        return whole.truncate(2 * found.n_modes) if found.n_modes < 160 else None

    nodes, found = np.arange(0, 400, 5), {}
    for n_runs in (2, 40):
        asked.clear()
        found[n_runs] = learn(whole.truncate(20), Probit(nodes, nodes * n_runs // 400 % 2), more=more)
        assert asked == [20 * 2**i for i in range(len(asked))]
    assert found[2].spectrum.n_modes < 80
    assert found[40].spectrum.n_modes == 160


def test_many_labels_decide_by_some_of_them(monkeypatch):
    """The hyper-parameters are those of some labels, moved by all, and the posterior is that of all."""
    monkeypatch.setattr("graphuq.learning.learned.MOST_CLIMBED", 40)
    rng = np.random.default_rng(0)
    S = spectrum.dense(laplacian.normalized(graph.knn(rng.standard_normal((150, 2)), n_neighbors=6))).truncate(30)
    nodes = np.arange(120)
    model = Probit(nodes, (S.vectors[:120, 1] > 0).astype(int))
    found = learn(S, model)
    assert len(found.posterior.weights) == 1
    free = found.log_deviations._replace(
        alpha=1.0, linear=1.0, bent=1.0, gamma=1.0
    )  # these are fixed, or not there
    assert 0.02 < min(free) < max(free) < np.log(5.0)  # no wider than the widest of the hyperprior
    whole, _ = problems(S, model, None, None)
    few = whole.with_few_labels(40)
    assert len(few.model.nodes) == 40
    some, best = climb(few), climb(whole)
    h = found.hyperparameters
    odds = h.mistakes / (1 - h.mistakes)
    theta = np.log([h.alpha / h.tau**2, h.alpha, h.graph, 1e-100, h.constant, odds, h.gamma])
    point = whole.at(theta)
    np.testing.assert_allclose(point.hyperparameters, h, rtol=1e-8)
    assert whole.at(some.theta).log_posterior < point.log_posterior <= best.log_posterior + 1e-3
    exact = GaussianPosterior.of(found.prior, replace(found.model), negligible=AS_NOISE)
    assert len(exact.model.nodes) == 120
    np.testing.assert_allclose(found.posterior.probability(), exact.probability(), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Neither the graph")
def test_labels_that_say_nothing_leave_the_temperature_that_is_believed(monkeypatch):
    """Where every class is as probable as any other, whatever T, what is left is its median, 1 for two classes."""
    S = random_spectrum(30, seed=4)
    for n_classes in (2, 3, 5):
        y = np.repeat(np.arange(n_classes), 2)
        found = learn(S, Probit(3 * np.arange(len(y)), y)).posterior
        with monkeypatch.context() as patch:
            patch.setattr(
                Mixture, "left_out", lambda self: np.full((len(self.model.y), self.n_classes), 1 / self.n_classes)
            )
            assert found.tempered().temperature == pytest.approx((2 / n_classes) ** 0.3, rel=1e-3)
            few = found.with_labels(np.array([0, 3, 6, 9]), np.array([0, 0, 1, n_classes - 1]))
            if n_classes > 2:  # half of these labels are the only ones of their class
                assert few.temperature == pytest.approx((2 / n_classes) ** (0.3 + 0.4 / 4), rel=1e-3)


def test_single_labels_have_the_temperature_of_singles():
    """Of classes with one label each nothing can be left out; a second label of one of them is judged."""
    S = random_spectrum(30, seed=4)
    alone = learn(S, Probit([0, 9, 18], [0, 1, 2]))
    assert alone.posterior.temperature == pytest.approx((2 / 3) ** 0.7)
    assert learn(S, Probit([0, 9, 18, 27], [0, 1, 2, 2])).posterior.temperature != alone.posterior.temperature
    later = alone.posterior.with_labels(np.array([0, 9, 18, 27, 5]), np.array([0, 1, 2, 2, 1]))
    assert later.temperature != alone.posterior.temperature
    assert later.with_labels(later.model.nodes, later.model.y).temperature == pytest.approx(
        later.temperature, rel=1e-3
    )


def clouds(n_labels):
    """Two overlapping clouds on a graph, some of whose nodes have labels."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 400)
    S = spectrum.dense(
        laplacian.normalized(graph.knn(rng.standard_normal((400, 3)) + 1.2 * y[:, None], n_neighbors=8))
    )
    whole, _ = problems(S.truncate(40), Probit(np.arange(n_labels), y[:n_labels]), None, None)
    return whole


def test_a_peak_alone_has_the_integral_of_its_gaussian():
    problem, _ = problems(S, MODELS["two classes"], None, OPEN)
    peak = climb(problem)
    axes = axes_of(problem, peak)
    (point,), (log_weight,) = alone(peak, axes)
    assert point is peak
    inverse = (axes @ axes.T)[np.ix_(problem.family.free, problem.family.free)]
    integral = np.linalg.slogdet(2 * np.pi * inverse)[1] / 2
    assert log_weight == pytest.approx(peak.log_posterior + integral, rel=1e-9)


@pytest.mark.parametrize("n_few", [90, 180])
def test_the_step_from_few_labels_to_all_is_as_long_as_it_should_be(n_few):
    """One of half or twice its length ends farther below the peak of all labels."""
    whole = clouds(360)
    few = whole.with_few_labels(n_few)
    best, some = climb(whole), climb(few)
    found = with_all_labels(whole, few, some, axes_of(few, some))
    step = found.theta - some.theta
    start, half, there, twice = (
        best.log_posterior - whole.at(some.theta + share * step, found.fit, 1e-8).log_posterior
        for share in (0, 0.5, 1, 2)
    )
    assert there < 0.1 * start
    assert there < 0.4 * min(half, twice)


def test_the_bound_of_a_structure_is_not_exceeded_and_is_reached_where_labels_say_nothing():
    whole = clouds(60)
    peak = climb(whole)
    log_weights = around(whole, peak, axes_of(whole, peak))[1]
    assert np.logaddexp.reduce(log_weights) < bound(whole, peak)
    small = np.where(np.arange(len(BOUNDS)) == GRAPH, 0.0, whole.family.mean)  # where sweeps converge
    family = replace(whole.family, log_modes=None, mean=small)
    center = replace(whole, family=family).at(family.mean)
    assert bound(replace(whole, family=family), center) == pytest.approx(center.fit.log_evidence, abs=1e-10)


def test_a_tenth_of_the_labels_wrong_is_explained_by_mistakes_and_not_by_small_fields():
    X, truth = make_moons(300, noise=0.08, random_state=1)
    nodes = np.random.default_rng(1).permutation(300)[:120]
    y = np.full(300, -1)
    y[nodes] = truth[nodes]
    y[nodes[:12]] = 1 - y[nodes[:12]]
    found = GraphClassifier().fit(X, y)
    assert 0.05 < found.hyperparameters_["mistakes"] < 0.15
    assert set(found.suspicious_labels(12).nodes) == set(nodes[:12])
    assert -np.log(found.label_distributions_[np.arange(300), truth]).mean() < 0.05


def test_no_evidence_is_believed_where_sweeps_do_not_converge(monkeypatch):
    """Left at any state, sites may claim more than certainty."""
    problem = problems(S, MODELS["three classes"], FEATURES, OPEN)[0]
    peak = climb(problem)
    bare = StarSites.fit
    wild = {"log_evidence": 1e5, "converged": False}
    monkeypatch.setattr(StarSites, "fit", lambda *a, **k: replace(bare(*a, **k), **wild))
    assert problem.at(peak.theta).log_posterior < peak.log_posterior - 900


@pytest.mark.parametrize("given", [{"graph": 12.0}, {"diffusion": None}, {"beside_linear": (3.0, 3.0)}])
def test_a_hyperprior_is_of_log_normals(given):
    (name,) = given
    with pytest.raises(TypeError, match=f"{name} must be a LogNormal"):
        Hyperprior(**given)


def test_the_threads_of_learning_are_those_of_its_widest_structure(monkeypatch):
    asked = []
    monkeypatch.setattr("graphuq.learning.learned.blas_threads", lambda n: asked.append(n) or nullcontext())
    learn(S, MODELS["two classes"], features=FEATURES)
    assert asked == [len(NODES) ** 3]  # there are more columns than labels


def test_level_set_has_no_constant_alone():
    """All labels contradict each other there, of which its evidence would be wrong."""
    found = problems(S, MODELS["level-set"], FEATURES, None)
    assert all(each.family.n_features + each.family.values.size for each in found)
