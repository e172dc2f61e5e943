"""Labels of different precision: the noise of a label of weight w is gamma / sqrt(w)."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.datasets import load_iris

from graphuq import (
    PCN,
    GaussianPosterior,
    GraphClassifier,
    Orthant,
    graph,
    laplacian,
    posterior,
    prior,
    sample,
    spectrum,
)
from graphuq.classes import read_labels, weighted
from graphuq.learning.evidence import problems
from graphuq.models import GinzburgLandau, LevelSet, Probit

RNG = np.random.default_rng(0)
S = spectrum.dense(laplacian.normalized(graph.gaussian(RNG.standard_normal((30, 2)), tau=1.0)))
PRIORS = {
    "modes": prior.matern(S, tau=0.5, alpha=1, n_modes=4),
    "labels": prior.full(S),
    "tail": prior.approximate(S, n_modes=2),
}
NODES, Y, WEIGHTS = np.array([0, 9, 20]), np.array([1, 0, 1]), np.array([0.2, 1.0, 5.0])
GAMMA = 0.8


def exact(mu0, rows, weights=WEIGHTS, n=60):
    """P(y = 1) at rows given labels of two classes, by quadrature over u at the labeled nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    z = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    mass = np.prod(np.stack(np.meshgrid(w, w, w, indexing="ij"), axis=-1).reshape(-1, 3), axis=1)
    C = mu0.covariance(NODES, NODES)
    u = z @ np.linalg.cholesky(C).T
    mass = mass * np.prod(ndtr((2 * Y - 1) * u * np.sqrt(weights) / GAMMA), axis=1)
    K = mu0.covariance(rows, NODES) @ np.linalg.inv(C)
    left = mu0.marginal_variance(rows) - np.einsum("ij,ij->i", K @ C, K)
    p = ndtr((u @ K.T) / np.sqrt(np.maximum(left, 0) + GAMMA**2))
    return mass @ p / mass.sum()


@pytest.mark.parametrize("mu0", PRIORS.values(), ids=PRIORS)
def test_expectation_propagation_against_quadrature(mu0):
    rows = np.arange(30)
    found = GaussianPosterior.of(mu0, Probit(NODES, Y, GAMMA, weights=WEIGHTS)).classes(rows)
    truth = exact(mu0, rows)
    np.testing.assert_allclose(found.probability[:, 1], truth, atol=5e-3)
    assert np.abs(exact(mu0, rows, np.ones(3)) - truth).max() > 0.03  # the weights matter


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("sampler", [Orthant(), PCN()], ids=["Orthant", "PCN"])
def test_draws_against_quadrature(name, sampler):
    rows = np.arange(30)
    model = Probit(NODES, Y, GAMMA, weights=WEIGHTS)
    found = sample(PRIORS[name], model, sampler, n_steps=3000, n_warmup=500, n_chains=8, seed=1)
    classes, truth = found.classes(rows), exact(PRIORS[name], rows)
    assert np.abs((classes.probability[:, 1] - truth) / classes.error[:, 1]).max() < 5
    assert (
        np.abs((classes.probability[:, 1] - exact(PRIORS[name], rows, np.ones(3))) / classes.error[:, 1]).max() > 5
    )


def test_labeled_rows_are_answered_as_by_draws():
    nodes, y = np.arange(28), (np.arange(28) // 3) % 2
    model = Probit(nodes, y, GAMMA, weights=np.where(nodes % 2, 5.0, 0.2))
    by_ep, drawn = (
        GaussianPosterior.of(PRIORS["labels"], model),
        sample(PRIORS["labels"], model, n_steps=4000, seed=0),
    )
    np.testing.assert_allclose(by_ep.probability(), drawn.probability(), atol=0.01)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_equal_weights_are_another_gamma(n_classes):
    y = np.arange(9) % n_classes
    nodes, settings = np.arange(9), {"n_classes": n_classes, "delta": 0.01}
    by_weight = Probit(nodes, y, 1.0, weights=np.full(9, 4.0), **settings)
    by_gamma = Probit(nodes, y, 0.5, **settings)
    u = jnp.asarray(np.random.default_rng(1).standard_normal((9, n_classes) if n_classes > 2 else 9))
    np.testing.assert_allclose(by_weight.log_likelihood(u), by_gamma.log_likelihood(u), rtol=1e-5)
    mu0 = PRIORS["modes"]
    one, other = (GaussianPosterior.of(mu0, model) for model in (by_weight, by_gamma))
    assert one.fit.log_evidence == pytest.approx(other.fit.log_evidence, abs=1e-7)
    np.testing.assert_allclose(
        one.classes(noise=False).probability, other.classes(noise=False).probability, atol=1e-7
    )


def test_the_gradient_of_the_evidence_against_differences():
    y = np.arange(9) % 3
    model = Probit(np.arange(9), y, weights=np.linspace(0.3, 3, 9))
    problem = problems(S, model, None, None)[0]
    theta, free = problem.family.starts[0], problem.family.free

    def at(theta):
        return problem.at(theta, tolerance=1e-11, max_sweeps=2000)

    gradient = problem.gradient(at(theta))
    for k in np.flatnonzero(free):
        step = 1e-3 * np.eye(len(theta))[k]
        slope = (at(theta + step).log_posterior - at(theta - step).log_posterior) / 2e-3
        assert gradient[k] == pytest.approx(slope, abs=2e-2 * max(1, abs(slope)))


def test_new_labels_have_the_usual_weight_and_old_ones_keep_theirs():
    model = Probit(NODES, Y, GAMMA, weights=WEIGHTS)
    before = GaussianPosterior.of(PRIORS["modes"], model)
    after = before.with_labels(np.array([0, 9, 20, 25]), np.array([1, 1, 1, 0]))
    np.testing.assert_array_equal(after.model.weights, [0.2, 1.0, 5.0, 1.0])
    again = GaussianPosterior.of(PRIORS["modes"], after.model)
    np.testing.assert_allclose(after.probability(), again.probability(), atol=1e-4)
    np.testing.assert_allclose(after.with_labels(NODES, Y).model.weights, WEIGHTS)


def test_weights_are_saved(tmp_path):
    one = GaussianPosterior.of(PRIORS["modes"], Probit(NODES, Y, GAMMA, weights=WEIGHTS))
    one.save(tmp_path / "one.npz")
    read = posterior.load(tmp_path / "one.npz")
    np.testing.assert_array_equal(read.model.weights, WEIGHTS)
    np.testing.assert_allclose(read.probability(), one.probability(), atol=1e-9)


def test_the_classifier_believes_precise_labels_more():
    flowers = load_iris()
    rng = np.random.default_rng(0)
    y = np.full(150, -1)
    nodes = np.concatenate([rng.choice(np.flatnonzero(flowers.target == k), 12, replace=False) for k in range(3)])
    y[nodes] = flowers.target[nodes]
    wrong = nodes[::4]
    y[wrong] = (y[wrong] + 1) % 3
    weight = np.ones(150)
    weight[wrong] = 0.01
    plain, doubted = (GraphClassifier().fit(flowers.data, y, each) for each in (None, weight))
    losses = [
        -np.log(each.label_distributions_[np.arange(150), flowers.target]).mean() for each in (plain, doubted)
    ]
    assert losses[1] < 0.7 * losses[0]
    later = doubted.partial_fit_labels([int(np.flatnonzero(y < 0)[0])], [0])
    assert later.labels_.weights[np.isin(later.labels_.nodes, wrong)].tolist() == [0.01] * len(wrong)


def test_a_label_removed_and_given_again_has_the_usual_weight():
    """The labels are then those of the fit, but one weight is not."""
    flowers = load_iris()
    y = np.where(np.arange(150) % 10 == 0, flowers.target, -1)
    weight = np.ones(150)
    weight[:30] = 0.02
    classifier = GraphClassifier().fit(flowers.data, y, weight)
    before = classifier.label_distributions_
    for label in (-1, 0):
        classifier.partial_fit_labels([0, 10], [label] * 2)
    expected = [1, 1, 0.02] + [1] * 12
    assert classifier.labels_.weights.tolist() == expected
    assert classifier.posterior_.model.weights.tolist() == expected
    assert np.abs(classifier.label_distributions_ - before).max() > 0.005
    classifier.partial_fit_labels([50], [2]).partial_fit_labels([50], [flowers.target[50]])
    assert classifier.posterior_.model.weights.tolist() == expected


def test_a_label_of_weight_zero_is_left_out():
    flowers = load_iris()
    y = np.where(np.arange(150) % 10 == 0, flowers.target, -1)
    weight = np.ones(150)
    weight[[0, 60]] = 0
    without = np.where(weight > 0, y, -1)
    one, other = GraphClassifier().fit(flowers.data, y, weight), GraphClassifier().fit(flowers.data, without)
    np.testing.assert_allclose(one.label_distributions_, other.label_distributions_, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        (np.ones(4), "one number for each of 6 rows"),
        (np.array([1, 1, 1, -1, 1, 1]), "finite numbers, 0 or above"),
        (np.array([1, 1, 1, np.nan, 1, 1]), "finite numbers, 0 or above"),
        (np.array([1, 1, 1, 0, 0, 1]), "All labels of class b have zero sample_weight"),
    ],
)
def test_weights_that_cannot_be(weights, told):
    labels = read_labels(["a", "a", "", "b", "b", ""])
    with pytest.raises(ValueError, match=told):
        weighted(labels, weights, 6)


def test_models_without_weights_say_so():
    y = np.where(np.arange(30) % 5 == 0, (np.arange(30) // 5) % 2, -1)
    X = np.random.default_rng(0).standard_normal((30, 2))
    for name, model in (("level_set", LevelSet), ("ginzburg_landau", GinzburgLandau)):
        with pytest.raises(TypeError, match=f"{model.__name__} takes no weights of labels"):
            GraphClassifier(model=name).fit(X, y, np.ones(30))
    with pytest.raises(ValueError, match="between 1e-06 and 1e"):
        Probit(NODES, Y, weights=np.array([1, 1, 1e9]))
    with pytest.raises(ValueError, match="A node is repeated"):
        Probit([0, 0, 1], [1, 1, 0], weights=np.ones(3))
    with pytest.raises(ValueError, match="one number for each of the 3 labels"):
        Probit(NODES, Y, weights=np.ones(2))
