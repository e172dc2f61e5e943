import numpy as np
import pytest

from graphuq.inference import approximate
from graphuq.inference.approximate import GaussianPosterior
from graphuq.inference.extended import extend_whitening
from graphuq.models import GinzburgLandau, LevelSet, Probit
from tests.oracles import exact_label_means, four_priors, random_spectrum

SPECTRUM = random_spectrum(seed=2)
PRIORS = four_priors(SPECTRUM)
NODES, Y = np.array([4, 21]), np.array([1.0, -1.0])
ASKED = np.array([0, 4, 9, 15, 26])
MODELS = {"probit": Probit, "level_set": LevelSet}


@pytest.mark.filterwarnings("ignore:Every label is")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("n_labels", [1, 2])
def test_probabilities_match_closed_forms(prior, model, n_labels):
    """One label to the error of a quadrature: there the method is exact; two roughly.

    Under the smoothest prior a node all but shares the label's u, and a step in it is what eight points resolve least.
    """
    hardest = prior == "matern" and model == "level_set"
    tolerance = {1: 0.012 if hardest else 1e-3, 2: 0.06 if hardest else 0.02}[n_labels]
    labels = MODELS[model](NODES[:n_labels], Y[:n_labels], gamma=0.8)
    found = GaussianPosterior.of(PRIORS[prior], labels)
    means = exact_label_means(PRIORS[prior], labels, ASKED)
    np.testing.assert_allclose(2 * found.probability(ASKED) - 1, means, atol=tolerance)
    np.testing.assert_allclose(found.label_variance(ASKED), 1 - means**2, atol=2 * tolerance)


def test_all_nodes_in_blocks_are_the_same_as_at_once(monkeypatch):
    found = GaussianPosterior.of(PRIORS["full"], Probit(NODES, Y))
    at_once = found.probability()
    assert at_once.shape == (SPECTRUM.n_nodes,)
    monkeypatch.setattr(approximate, "BLOCK_NUMBERS", 7)
    np.testing.assert_allclose(found.probability(), at_once, rtol=1e-12)


def test_nodes_may_be_a_mask():
    found = GaussianPosterior.of(PRIORS["full"], Probit(NODES, Y))
    mask = np.isin(np.arange(SPECTRUM.n_nodes), ASKED)
    assert np.array_equal(found.probability(mask), found.probability(ASKED))
    with pytest.raises(ValueError, match="between 0 and 29"):
        found.probability([30])


def test_a_new_node_where_an_old_one_is_gets_its_answer():
    found = GaussianPosterior.of(PRIORS["project"], Probit(NODES, Y))
    vectors = PRIORS["project"].vectors
    whitening = extend_whitening(found.whitening, vectors[[9]], np.ones(vectors.shape[1], dtype=bool))
    larger = GaussianPosterior(whitening, found.result)
    np.testing.assert_allclose(larger.probability([SPECTRUM.n_nodes]), found.probability([9]))


def test_a_model_that_expectation_propagation_does_not_know_is_refused():
    with pytest.raises(TypeError, match="Probit and LevelSet"):
        GaussianPosterior.of(PRIORS["full"], GinzburgLandau(NODES, Y))
