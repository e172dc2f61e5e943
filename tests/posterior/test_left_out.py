"""Labels left out in turn: what is told of them, against the binomial distribution."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from graphuq.posterior.left_out import self_check


def checked(n_labels, confidence, n_right):
    """Of so many labels, half of them of each class, all predicted with one confidence, so many rightly."""
    y = np.arange(n_labels) % 2
    says = np.where(np.arange(n_labels) < n_right, y, 1 - y)
    p = np.where(np.arange(2) == says[:, None], confidence, 1 - confidence)
    return self_check(SimpleNamespace(model=SimpleNamespace(y=y), n_classes=2), left_out=p)


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
    assert "less than the 0.703 of bare class shares" in good


def test_where_all_is_sure_one_label_stays_hidden():
    assert checked(50, 1 - 1e-9, 50).hidden == 1 / 50
