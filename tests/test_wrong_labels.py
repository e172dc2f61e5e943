import numpy as np
import pytest

from graphuq.inference.marginals import labeled_probability
from graphuq.inference.run import sample
from graphuq.learning import learn
from graphuq.models import Probit
from graphuq.wrong_labels import suspicious_labels, wrong_label_probability
from tests.test_learning import clusters

MODES, BLOCK = clusters([40, 40], gap=0.005)
NODES = np.arange(0, 80, 2)
WRONG = np.array([4, 17, 25, 33])
Y = np.where(BLOCK[NODES] == 0, 1.0, -1.0)
Y[WRONG] *= -1


@pytest.fixture(scope="module")
def learned():
    return learn(MODES, Probit(NODES, Y))


def test_flipped_labels_come_first(learned):
    found = suspicious_labels(learned, n=4)
    assert set(found.nodes) == set(NODES[WRONG])
    assert (np.diff(found.probability) <= 0).all()
    np.testing.assert_array_equal(found.y, Y[np.searchsorted(NODES, found.nodes)])
    right = np.delete(wrong_label_probability(learned), WRONG)
    assert right.max() < found.probability.min()


def test_it_is_the_average_of_the_tilted_probabilities(learned):
    positive = sum(w * labeled_probability(p.fit) for w, p in zip(learned.weights, learned.points, strict=True))
    np.testing.assert_allclose(wrong_label_probability(learned), np.where(Y > 0, 1 - positive, positive))
    assert suspicious_labels(learned).nodes.size == NODES.size


def test_exact_draws_agree(learned):
    """At the peak's prior and gamma; a ranking by draws finds the same labels."""
    posterior = sample(learned.prior, learned.model, n_steps=500, n_warmup=100)
    assert set(suspicious_labels(posterior, n=4).nodes) == set(NODES[WRONG])
    alone = learn(MODES, Probit(NODES, Y), average=False)
    np.testing.assert_allclose(wrong_label_probability(posterior), wrong_label_probability(alone), atol=0.06)


def test_bad_input_is_refused(learned):
    with pytest.raises(ValueError, match="n must be at least 1"):
        suspicious_labels(learned, n=0)
