"""Expectation propagation against chains: a small posterior from end to end, and a wrong answer found out."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from experiments import ep_accuracy
from experiments.experiment import Record
from experiments.runner import plain

from graphuq import prior, spectrum
from graphuq.laplacian import normalized
from graphuq.models import Probit
from tests.oracles import dense_covariance, exact_label_mean

SMALL = replace(ep_accuracy.QUICK, data=("voting",), n_steps=200, n_chains=8)
TRIALS = [trial for trial in ep_accuracy.trials(SMALL) if trial["model"] == "probit"]  # one program to compile


def test_probabilities_are_exact_for_two_labels():
    weights = np.eye(12, k=1) + np.eye(12, k=-1) + np.eye(12, k=11) + np.eye(12, k=-11)
    believed = prior.full(spectrum.dense(normalized(weights)))
    _, found = ep_accuracy.label_probability(believed, Probit([0, 5], [1, -1], gamma=0.5))
    C = dense_covariance(believed)
    expected = [exact_label_mean(C, [0, 5], np.array([1.0, -1.0]), node, probit_gamma=0.5) for node in range(12)]
    np.testing.assert_allclose(2 * found - 1, expected, atol=0.01)


@pytest.fixture(scope="module")
def results():
    return [plain(ep_accuracy.run(SMALL, trial)) for trial in TRIALS]


def test_voting_agrees_within_the_limit(results):
    record = Record("ep_accuracy", "quick", asdict(SMALL), ep_accuracy.summarize(SMALL, results), 1.0, "0", "")
    assert [claim.agrees for claim in ep_accuracy.claims(record)] == [True, True]
    assert len(ep_accuracy.draw(record).axes) == 1
    assert record.values["worst_r_hat"] < 1.05


def test_a_wrong_posterior_is_found_out(results, monkeypatch):
    """The same chains against probabilities of the opposite labels."""
    honest = ep_accuracy.label_probability
    monkeypatch.setattr(ep_accuracy, "label_probability", lambda *both: (honest(*both)[0], 1 - honest(*both)[1]))
    assert ep_accuracy.run(SMALL, TRIALS[0])["mean"] > 5 * results[0]["mean"]
