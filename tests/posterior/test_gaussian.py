"""The posterior of expectation propagation, against orthant probabilities, simulations and draws."""

from dataclasses import replace

import numpy as np
import pytest

from graphuq.inference.marginals import labeled_probability
from graphuq.inference.run import sample
from graphuq.models import GinzburgLandau, LevelSet, Probit
from graphuq.posterior import GaussianPosterior, load
from graphuq.prior import GaussianPrior
from tests.oracles import exact_label_means, four_priors, random_spectrum, simulated_classes

PRIORS = four_priors(random_spectrum(seed=2))
NODES, Y = np.array([4, 21]), np.array([1, 0])
ASKED = np.array([0, 4, 9, 15, 26])
MODELS = {
    "probit": Probit(NODES, Y, gamma=0.8),
    "probit_with_mistakes": Probit(NODES, Y, gamma=0.8, delta=0.1),
    "level_set": LevelSet(NODES, Y, gamma=0.8),
}


@pytest.mark.filterwarnings("ignore:Every label is")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n_labels", [1, 2])
def test_probabilities_match_closed_forms(prior, model, n_labels):
    """One label to the error of a quadrature: there the method is exact; two roughly."""
    hardest = prior == "matern" and model == "level_set"
    tolerance = {1: 4e-4, 2: 0.035 if hardest else 0.008}[n_labels]
    labels = replace(MODELS[model], nodes=NODES[:n_labels], y=Y[:n_labels])
    found = GaussianPosterior.of(PRIORS[prior], labels)
    means = exact_label_means(PRIORS[prior], labels, ASKED)
    np.testing.assert_allclose(found.label_mean(ASKED), means, atol=tolerance)
    np.testing.assert_allclose(found.label_variance(ASKED), 1 - means**2, atol=2 * tolerance)
    predictive = exact_label_means(PRIORS[prior], labels, ASKED, predictive=True)
    found_p = found.probability(ASKED)
    np.testing.assert_allclose(found_p[:, 1] - found_p[:, 0], predictive, atol=tolerance)


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("prior", PRIORS)
def test_three_classes_match_simulations(prior, delta):
    """Three labels: half-spaces are cut out of Gaussians, which a Gaussian renders to a few hundredths."""
    labels = Probit([4, 21, 9], [0, 2, 1], gamma=0.8, delta=delta)
    found = GaussianPosterior.of(PRIORS[prior], labels)
    for noise, (expected, error) in enumerate(simulated_classes(PRIORS[prior], labels, ASKED, n_draws=100_000)):
        off = np.abs(found.classes(ASKED, noise=bool(noise)).probability - expected)
        assert off.max() < 0.03 + 5 * error.max()
        assert off.mean() < 0.01 + 5 * error.mean()


@pytest.mark.parametrize("y", [[1, 0, 1, 0], [1, 0, 2, 1]], ids=["two classes", "three classes"])
@pytest.mark.parametrize("prior", PRIORS)
def test_what_counts_as_noise_is_the_same_from_a_file_and_with_other_labels(prior, y, tmp_path):
    nodes, y = np.array([4, 21, 9, 15]), np.array(y)
    model = Probit(nodes, y, gamma=0.8)
    found, other = (GaussianPosterior.of(PRIORS[prior], model, negligible=each) for each in (2.0, 0.0))
    assert np.abs(found.probability() - other.probability()).max() > 1e-3
    found.save(tmp_path / "p.npz")
    np.testing.assert_allclose(load(tmp_path / "p.npz").probability(), found.probability(), atol=1e-6)
    few = replace(model, nodes=nodes[:3], y=y[:3])
    later = GaussianPosterior.of(PRIORS[prior], few, negligible=2.0).with_labels(nodes, y)
    assert later.negligible == 2.0
    np.testing.assert_allclose(later.probability(), found.probability(), atol=1e-4)


@pytest.mark.parametrize(
    "model", [GinzburgLandau(NODES, Y), LevelSet(NODES, Y, n_fields=2), LevelSet([1, 2, 3], [0, 1, 2])]
)
def test_a_model_that_expectation_propagation_does_not_know_is_refused(model):
    with pytest.raises(TypeError, match=f"{type(model).__name__} offers no sites"):
        GaussianPosterior.of(PRIORS["full"], model)


def test_labels_that_contradict_each_other_are_reported():
    rng = np.random.default_rng(1)
    labels = LevelSet(np.arange(30), rng.integers(0, 2, 30), gamma=0.1)
    found = GaussianPosterior.of(PRIORS["project"], labels).diagnostics()
    assert not found.converged
    assert "did not converge" in str(found)
    assert "converged after" in str(GaussianPosterior.of(PRIORS["full"], MODELS["probit"]).diagnostics())


@pytest.mark.parametrize("model", [Probit, LevelSet])
@pytest.mark.parametrize("far", [[], [4]])
@pytest.mark.parametrize("gamma", [0.7, 3.0])
def test_where_u_is_0_for_certain_either_class_is_as_probable(model, far, gamma):
    """Nodes that no mode of the prior reaches, without a label and with one, beside others that are as without them."""
    vectors = np.zeros((6, 2))
    vectors[[0, 1], 0], vectors[[2, 3], 1] = np.sqrt(0.5), np.sqrt(0.5)
    prior = GaussianPrior(vectors, np.array([2.0, 3.0]))
    labels = model([0, 2, *far], [0, 1, *[1] * len(far)], gamma=gamma)
    closed, drawn = GaussianPosterior.of(prior, labels), sample(prior, labels, n_steps=400)
    alone = GaussianPosterior.of(prior, model([0, 2], [0, 1], gamma=gamma))
    for noise in (True, False):
        expected = alone.classes(noise=noise).probability
        np.testing.assert_allclose(closed.classes([0, 1, 2, 3], noise=noise).probability, expected[:4], atol=1e-6)
        for found in (closed, drawn):
            np.testing.assert_allclose(found.classes([5], noise=noise).probability, 0.5, atol=1e-12)
    assert np.isfinite(closed.classes(noise=False).probability).all()
    assert np.isfinite(closed.left_out()).all()
    assert closed.fit.log_evidence == pytest.approx(alone.fit.log_evidence + len(far) * np.log(0.5), abs=1e-6)
    assert set(drawn.most_uncertain(6)[:1]) <= {4, 5}


def test_nearly_equal_rows_with_different_labels_are_not_called_converged_without_noise():
    """Of two rows, against the probabilities of the four pairs of signs in closed form."""
    for apart, trusted in ((1e-6, False), (5e-3, False), (0.2, True)):
        rho = 1 - apart
        prior = GaussianPrior(np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2), np.array([1 + rho, 1 - rho]))
        found = GaussianPosterior.of(prior, LevelSet([0, 1], [1, 0], gamma=0.8))
        together, height = 0.25 + np.arcsin(rho) / (2 * np.pi), 2 / 0.8**2
        weights = np.array([together * np.exp(-height), 0.5 - together])  # one label wrong, or none
        both_wrong = (0.5 - together) * np.exp(-2 * height)
        exact = weights.sum() / (weights.sum() + weights[0] + both_wrong)
        error = abs(labeled_probability(found.fit)[0] - exact)  # as with many labels; those of few are corrected
        assert (error < 0.05) == trusted == found.diagnostics().converged
        assert ("cannot be trusted" in str(found.diagnostics())) != trusted
    assert GaussianPosterior.of(prior, Probit([0, 1], [1, 0], gamma=0.5)).diagnostics().converged


@pytest.mark.parametrize("gamma", [0.001, 0.05, 0.1])
def test_labels_that_no_field_can_have_end_without_convergence(gamma):
    """One mode has one sign at each node; where mistakes are all but impossible, sites grow beyond all bounds."""
    nodes = np.arange(12)
    prior = GaussianPrior(PRIORS["full"].vectors[:, :2], np.array([0.0, 30.0]))
    y = np.arange(12) % 2
    found = GaussianPosterior.of(prior, LevelSet(nodes, y, gamma=gamma))
    assert not found.diagnostics().converged
    p = found.probability()
    np.testing.assert_allclose(p.sum(axis=1), 1)


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("make", [Probit, LevelSet])
def test_many_labeled_nodes_are_as_in_exact_draws(make, noise):
    """A label truncates u at its own node: there a Gaussian would be off by .05 (probit) and .2 (level-set)."""
    nodes = np.arange(24)
    y = (PRIORS["matern"].sample(seed=5)[0, nodes] > 0).astype(int)
    model = make(nodes, y, gamma=0.8 if make is LevelSet else 0.1)
    exact = sample(PRIORS["matern"], model, n_steps=2000, dtype="float64", progress=False)
    expected = exact.classes(nodes, noise=noise)
    found = GaussianPosterior.of(PRIORS["matern"], model).classes(nodes, noise=noise)
    assert (np.abs(found.probability - expected.probability) < 0.02 + 5 * expected.error).all()
