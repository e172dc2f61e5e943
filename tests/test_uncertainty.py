"""What probabilities say: by hand, for two classes against |s|, and where classes are equally probable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import entropy as entropy_of_scipy

from graphuq import uncertainty

FUNCTIONS = (uncertainty.confidence, uncertainty.margin, uncertainty.entropy, uncertainty.label_variance)


def probabilities(n=200, n_classes=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(n_classes, 0.5), n)


def two_classes(n=200, digits=2, seed=0):
    """p of the second class, rounded so that many are equal, some 0, some one half and some 1."""
    q = np.round(np.random.default_rng(seed).beta(0.5, 0.5, n), digits)
    return q, np.column_stack([1 - q, q])


def test_by_hand():
    p = [[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.1, 0.45, 0.45]]
    assert uncertainty.most_probable(p).tolist() == [0, 1, 1]
    np.testing.assert_allclose(uncertainty.confidence(p), [0.5, 1, 0.45])
    np.testing.assert_allclose(uncertainty.margin(p), [0.2, 1, 0], atol=1e-15)
    np.testing.assert_allclose(uncertainty.label_variance(p), [1.5 * 0.62, 0, 1.5 * 0.585], atol=1e-15)
    np.testing.assert_allclose(uncertainty.entropy(p)[1:], [0, -0.1 * np.log(0.1) - 0.9 * np.log(0.45)])
    assert uncertainty.ranked(p).tolist() == [2, 0, 1]


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_equal_classes_are_a_coin_toss_and_a_certain_one_is_none(n_classes):
    equal, sure = np.full((1, n_classes), 1 / n_classes), np.eye(n_classes)
    assert uncertainty.most_probable(equal) == 0
    np.testing.assert_allclose(
        [f(equal)[0] for f in FUNCTIONS], [1 / n_classes, 0, np.log(n_classes), 1], rtol=1e-12, atol=1e-15
    )
    assert uncertainty.most_probable(sure).tolist() == list(range(n_classes))
    assert [f(sure).tolist() for f in FUNCTIONS] == [[x] * n_classes for x in (1, 1, 0, 0)]
    assert not np.signbit(uncertainty.entropy(sure)).any()


def test_against_the_plain_formulas():
    p = probabilities()
    ordered = np.sort(p, axis=1)
    assert (uncertainty.most_probable(p) == p.argmax(axis=1)).all()
    np.testing.assert_allclose(uncertainty.confidence(p), ordered[:, -1])
    np.testing.assert_allclose(uncertainty.margin(p), ordered[:, -1] - ordered[:, -2])
    np.testing.assert_allclose(uncertainty.entropy(p), entropy_of_scipy(p, axis=1))
    np.testing.assert_allclose(uncertainty.label_variance(p), 4 / 3 * (1 - np.square(p).sum(axis=1)))
    assert uncertainty.mean_label_variance(p) == uncertainty.label_variance(p).mean()


def test_rounding_does_not_decide_between_classes():
    assert uncertainty.most_probable([[0.5 - 1e-13, 0.5 + 1e-13], [0.5 - 1e-9, 0.5 + 1e-9]]).tolist() == [0, 1]


def test_two_classes_are_those_of_the_paper():
    q, p = two_classes()
    s = 2 * q - 1
    np.testing.assert_allclose(uncertainty.label_variance(p), 1 - s**2, atol=1e-14)
    np.testing.assert_allclose(uncertainty.margin(p), np.abs(s), atol=1e-14)
    assert uncertainty.most_probable(p).tolist() == (q > 0.5).astype(int).tolist()
    assert uncertainty.ranked(p).tolist() == np.argsort(np.round(np.abs(s), 12), kind="stable").tolist()
    fine_q, fine_p = two_classes(digits=16)
    assert uncertainty.ranked(fine_p).tolist() == np.argsort(np.abs(2 * fine_q - 1), kind="stable").tolist()


def test_rows_of_equal_confidence_are_ranked_by_margin_then_number():
    p = [[0.5, 0.3, 0.2], [0.4, 0.5, 0.1], [0.25, 0.25, 0.5], [0.5, 0.4, 0.1], [0.6, 0.2, 0.2]]
    assert uncertainty.ranked(p).tolist() == [1, 3, 0, 2, 4]
    assert uncertainty.ranked(p, [4, 3, 1]).tolist() == [1, 3, 4]
    assert uncertainty.ranked(p, []).tolist() == []
    assert uncertainty.most_uncertain(p, 2).tolist() == [1, 3]
    assert uncertainty.most_uncertain(p, np.int64(2), among=np.array([4, 0, 2])).tolist() == [0, 2]
    assert uncertainty.most_uncertain(p, 99, among=[4, 0]).tolist() == [0, 4]
    assert uncertainty.most_uncertain(p, 99, among=np.isin(np.arange(len(p)), [0, 4])).tolist() == [0, 4]


def test_renamed_classes_and_permuted_rows():
    p = probabilities()
    order = np.array([2, 0, 3, 1])
    for f in FUNCTIONS:
        np.testing.assert_allclose(f(p[:, order]), f(p), rtol=1e-12, atol=1e-14)
    assert (uncertainty.ranked(p[:, order]) == uncertainty.ranked(p)).all()
    assert (order[uncertainty.most_probable(p[:, order])] == uncertainty.most_probable(p)).all()
    rows = np.random.default_rng(1).permutation(len(p))
    assert (rows[uncertainty.ranked(p[rows])] == uncertainty.ranked(p)).all()


def test_small_doubts_keep_their_digits():
    doubt = 1e-14
    np.testing.assert_allclose(uncertainty.label_variance([[doubt, 1 - doubt]]), 4 * doubt, rtol=0.01)
    np.testing.assert_allclose(uncertainty.entropy([[doubt, 1 - doubt]]), doubt * (1 - np.log(doubt)), rtol=0.01)


def test_single_precision_and_no_rows_are_taken():
    p = probabilities(n_classes=10)
    np.testing.assert_allclose(
        uncertainty.entropy(p.astype(np.float32)), uncertainty.entropy(p), rtol=1e-5, atol=1e-6
    )
    assert uncertainty.label_variance(p.astype(np.float32)).min() >= 0
    assert uncertainty.ranked(np.empty((0, 3))).shape == (0,)
    with pytest.raises(ValueError, match="no rows"):
        uncertainty.mean_label_variance(np.empty((0, 3)))


@pytest.mark.parametrize(
    ("p", "words"),
    [
        ([0.5, 0.5], "shape"),
        ([[1.0]], "2 or more classes"),
        ([[0.5, 0.4]], "add up to 1, got 0.9 in row 0"),
        ([[1.2, -0.2]], "between 0 and 1, got 1.2"),
        ([[np.nan, 0.5]], "between 0 and 1, got nan"),
    ],
)
def test_bad_probabilities_are_refused(p, words):
    for f in (*FUNCTIONS, uncertainty.most_probable, uncertainty.ranked, uncertainty.mean_label_variance):
        with pytest.raises(ValueError, match=words):
            f(p)


@pytest.mark.parametrize("n", [0, -1, 2.5, "3"])
def test_a_number_of_rows_is_whole_and_positive(n):
    with pytest.raises((TypeError, ValueError), match="n must be a whole number"):
        uncertainty.most_uncertain([[0.5, 0.5]], n)


@pytest.mark.parametrize(
    ("among", "words"),
    [
        ([True], "A mask needs one entry for each of 2"),
        ([[0]], "shape"),
        ([2], "between 0 and 1, got 2"),
        ([-1], "got -1"),
        ([0, 0], "differ"),
    ],
)
def test_bad_row_numbers_are_refused(among, words):
    with pytest.raises(ValueError, match=words):
        uncertainty.ranked([[0.5, 0.5], [0.1, 0.9]], among)
