"""Labels left out in turn: what is told of them, against the binomial distribution."""

from functools import partial
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from graphuq.models import LevelSet, Probit
from graphuq.posterior.left_out import self_check, suspicious_labels


def checked(n_labels, confidence, n_right, mistakes=0.0):
    """Of so many labels, half of them of each class, all predicted with one confidence, so many rightly."""
    y = np.arange(n_labels) % 2
    says = np.where(np.arange(n_labels) < n_right, y, 1 - y)
    p = np.where(np.arange(2) == says[:, None], confidence, 1 - confidence)
    model = SimpleNamespace(y=y, mistake_rate=mistakes)
    one = SimpleNamespace(model=model, n_classes=2, weights=np.ones(1), components=[SimpleNamespace(model=model)])
    return self_check(one, left_out=p)


@pytest.mark.parametrize("n_labels", [40, 400])
@pytest.mark.parametrize("confidence", [0.6, 0.8, 0.95])
def test_what_stays_hidden_is_two_deviations_of_chance(n_labels, confidence):
    """Were the probabilities right, the share would stay within it 95 times of 100; within half of it, 68 times."""
    found = checked(n_labels, confidence, round(n_labels * confidence))
    assert found.hidden == pytest.approx(2 * np.sqrt(confidence * (1 - confidence) / n_labels))
    right = np.arange(n_labels + 1)
    within = np.abs(right / n_labels - confidence) <= found.hidden
    assert 0.92 < binom.pmf(right[within], n_labels, confidence).sum() < 0.98
    assert found.promised == pytest.approx(confidence)
    assert found.share_right == pytest.approx(round(n_labels * confidence) / n_labels)


@pytest.mark.parametrize(("n_right", "verdict"), [(60, "too sure"), (80, "about right"), (95, "too timid")])
def test_the_verdict_begins_where_chance_ends(n_right, verdict):
    found = checked(100, 0.8, n_right)
    assert found.verdict == verdict
    assert (abs(found.share_right - found.promised) > found.hidden) == (verdict != "about right")
    assert f"a difference below {found.hidden:.0%} would not show" in str(found)


def test_what_is_no_better_than_the_class_shares_is_told_first():
    assert str(checked(100, 0.99, 50)).startswith(
        "The answers are no better than a guess by the shares of the classes"
    )
    good = str(checked(100, 0.9, 90))
    assert good.startswith("As far as 100 labels can tell")
    assert "a guess by the shares of the classes has 0.703, and lower is better" in good


def test_where_all_is_sure_one_label_stays_hidden():
    assert checked(50, 1 - 1e-9, 50).hidden == 1 / 50


def test_mistakes_that_are_expected_are_counted():
    """Of 1,000 labels of classes known for sure a tenth is wrong, and the model knows of it."""
    found = checked(1000, 1 - 1e-9, 900, mistakes=0.1)
    assert found.verdict == "about right"
    assert found.promised == pytest.approx(0.9)
    assert found.log_loss == pytest.approx(-0.9 * np.log(0.9) - 0.1 * np.log(0.1))
    assert "90% were promised, 10% of labels being taken for mistakes" in str(found)
    assert checked(1000, 1 - 1e-9, 900, mistakes=0.2).verdict == "too timid"
    assert checked(1000, 1 - 1e-9, 900).verdict == "too sure"


def test_few_labels_tell_nothing():
    few = checked(4, 0.7, 3)
    assert few.verdict == "not known"
    assert str(few).startswith("4 labels are too few to tell whether the probabilities are right")
    single = checked(2, 0.7, 0)
    assert (single.n_labels, single.verdict) == (0, "not known")
    assert str(single) == "Whether the probabilities are right cannot be checked: no class has a second label."


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("make", [partial(Probit, delta=0.1), partial(LevelSet, gamma=0.8)])
def test_mistakes_are_what_labels_say_where_the_class_is_certain(make, n_classes):
    """Rows whose first class leads by far, each with another label: the likelihoods of these labels."""
    row = [-1e3] if n_classes == 2 else [1e3, -1e3, 0.0]
    u = jnp.asarray(np.tile(row, (n_classes, 1)))
    model = make(np.arange(n_classes), np.arange(n_classes), n_classes=n_classes)
    likelihood = np.exp(np.asarray(model.log_likelihood(u.ravel() if n_classes == 2 else u), dtype=float))
    assert model.mistake_rate == pytest.approx(1 - likelihood[0] / likelihood.sum(), rel=1e-4)


def posterior_of(y, n_classes):
    model = SimpleNamespace(y=y, nodes=np.arange(len(y)), mistake_rate=0.0)
    each = SimpleNamespace(model=model)
    return SimpleNamespace(model=model, n_classes=n_classes, weights=np.ones(1), components=[each])


def shares_of_the_others(y, n_classes):
    """What features that tell nothing leave to say, one label a class in advance."""
    counts = np.bincount(y, minlength=n_classes) - (np.arange(n_classes) == y[:, None]) + 1.0
    return counts / counts.sum(axis=1, keepdims=True)


def test_labels_are_no_reason_to_doubt_the_shares_of_their_classes():
    """Of as many labels of each class the one that is left out is always of the rarest: no prediction is right."""
    y = np.arange(24) % 3
    found = self_check(posterior_of(y, 3), left_out=shares_of_the_others(y, 3))
    assert found.share_right == 0
    assert found.z < -2
    assert found.verdict == "not known"
    assert "leaves its own class less frequent, which may be why" in str(found)
    assert "would not show" not in str(found)  # the difference does
    slightly = np.where(np.arange(3) == (y[:, None] + 1) % 3, 0.4, 0.3)  # for another class, and wrong
    sure = np.where(np.arange(3) == (y[:, None] + 1) % 3, 0.9, 0.05)
    for p in slightly, sure:  # eight labels of a class instead of seven turn 0.3 into 0.33, not into 0.4
        assert self_check(posterior_of(y, 3), left_out=p).verdict == "too sure"


def test_a_rare_class_is_no_mistake():
    """Labels of which the others say no more than how rare their class is, and one that they speak against."""
    y = np.r_[np.ones(6, dtype=int), np.zeros(114, dtype=int)]
    p = shares_of_the_others(y, 2)
    assert not suspicious_labels(posterior_of(y, 2), left_out=p).clear().size
    p[3] = 0.99, 0.01
    p[50] = 0.1, 0.9
    found = suspicious_labels(posterior_of(y, 2), left_out=p)
    assert found.nodes[found.clear()].tolist() == [3, 50]


@pytest.mark.parametrize(("probability", "flagged"), [(0.03, []), (0.02, [3])])
def test_half_the_share_of_a_rare_class_is_the_limit(probability, flagged):
    y = np.r_[np.ones(6, dtype=int), np.zeros(114, dtype=int)]
    p = shares_of_the_others(y, 2)
    p[3] = 1 - probability, probability
    found = suspicious_labels(posterior_of(y, 2), left_out=p)
    assert found.nodes[found.clear()].tolist() == flagged
