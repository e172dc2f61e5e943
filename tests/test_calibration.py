"""Calibration: against scikit-learn, by hand, and on draws that are calibrated by construction."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from graphuq import calibration


def binary(n=500, seed=0, digits=2):
    """Calibrated p of +1, rounded so that there are ties and exact zeros and ones, and the truth."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(0.5, 0.5, n), digits)
    return p, np.where(rng.uniform(size=n) < p, 1, -1)


def many_classes(n=500, n_classes=4, seed=0, sharpness=1.0):
    """Calibrated probabilities of several classes and the truth; another sharpness spoils them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.5), n)
    truth = (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1)
    p = p**sharpness
    return p / p.sum(axis=1, keepdims=True), truth


def test_two_classes_agree_with_scikit_learn():
    p, y = binary()
    assert {0.0, 1.0} <= set(p)
    predicted = np.where(p >= 0.5, 1, -1)
    assert np.isclose(calibration.accuracy(p, y), metrics.accuracy_score(y, predicted), rtol=1e-12)
    assert np.isclose(calibration.log_loss(p, y), metrics.log_loss(y, p), rtol=1e-12)
    assert np.isclose(calibration.brier(p, y), metrics.brier_score_loss(y, p), rtol=1e-12)
    auroc = metrics.roc_auc_score(predicted != y, -np.maximum(p, 1 - p))
    assert np.isclose(calibration.error_detection_auroc(p, y), auroc, rtol=1e-12)


def test_many_classes_agree_with_scikit_learn():
    p, y = many_classes()
    predicted = p.argmax(axis=1)
    assert np.isclose(calibration.accuracy(p, y), metrics.accuracy_score(y, predicted), rtol=1e-12)
    assert np.isclose(calibration.log_loss(p, y), metrics.log_loss(y, p), rtol=1e-12)
    assert np.isclose(calibration.brier(p, y), np.square(p - np.eye(4)[y]).sum(axis=1).mean(), rtol=1e-12)
    auroc = metrics.roc_auc_score(predicted != y, -p.max(axis=1))
    assert np.isclose(calibration.error_detection_auroc(p, y), auroc, rtol=1e-12)


def test_a_sure_mistake_costs_36_and_not_infinity():
    assert np.isclose(calibration.log_loss([0.0, 1.0], [1, 1]), -np.log(2.220446e-16) / 2, rtol=1e-6)


def flat(summary):
    parts = (summary.reliability, summary.risk_coverage)
    arrays = [value for part in parts for value in vars(part).values()]
    numbers = [value for value in vars(summary).values() if np.isscalar(value)]
    return np.concatenate([np.ravel(x) for x in (*arrays, *numbers)])


def test_the_forms_of_two_classes_agree():
    p, y = binary()
    p = np.where(p == 0.5, 0.51, p)  # a tie between columns goes to the first of them
    one = flat(calibration.summary(p, y))
    assert np.allclose(one, flat(calibration.summary(p, y > 0)), equal_nan=True)
    assert np.allclose(one, flat(calibration.summary(np.column_stack([1 - p, p]), y > 0)), equal_nan=True)
    assert np.allclose(one, flat(calibration.summary(1 - p, -y)), equal_nan=True)


def test_the_order_of_the_nodes_does_not_matter():
    p, y = binary(digits=1)
    order = np.random.default_rng(1).permutation(len(p))
    shuffled = calibration.summary(p[order], y[order])
    assert np.allclose(flat(calibration.summary(p, y)), flat(shuffled), rtol=1e-12, equal_nan=True)


def test_renamed_classes_change_nothing():
    p, y = many_classes()
    order = np.array([2, 0, 3, 1])
    renamed = calibration.summary(p[:, order], np.argsort(order)[y])
    assert np.allclose(flat(calibration.summary(p, y)), flat(renamed), equal_nan=True)


def test_reliability_by_hand():
    #       right  right  wrong  right  right  wrong; two bins: (0.5, 0.75] and (0.75, 1]
    p = [0.6, 0.3, 0.75, 0.8, 0.1, 1.0]
    y = [1, -1, -1, 1, -1, -1]
    table = calibration.reliability(p, y, n_bins=2)
    assert np.allclose(table.edges, [0.5, 0.75, 1.0])
    assert table.counts.tolist() == [3, 3]
    assert np.allclose(table.confidence, [(0.6 + 0.7 + 0.75) / 3, (0.8 + 0.9 + 1.0) / 3])
    assert np.allclose(table.frequency, [2 / 3, 2 / 3])
    assert np.isclose(table.ece, abs(2.05 / 3 - 2 / 3) / 2 + abs(2.7 / 3 - 2 / 3) / 2)


def test_an_empty_bin_has_no_mean_and_no_weight():
    table = calibration.reliability([0.9, 0.95, 0.55], [1, 1, -1], n_bins=5)
    assert table.counts.tolist() == [1, 0, 0, 1, 1]
    assert np.isnan(table.confidence[1:3]).all()
    assert np.isnan(table.frequency[1:3]).all()
    assert np.isclose(table.ece, (0.55 + 0.1 + 0.05) / 3)


def z_score(p, y):
    """Of the number of right predictions in each bin, were the confidences right; the worst."""
    table = calibration.reliability(p, y)
    filled = table.counts > 500
    confidence, counts = table.confidence[filled], table.counts[filled]
    return np.max(np.abs(table.frequency[filled] - confidence) / np.sqrt(confidence * (1 - confidence) / counts))


@pytest.mark.parametrize(
    "draw", [lambda s: many_classes(20_000, 4, 1, s), lambda s: many_classes(20_000, 2, 1, s)]
)
def test_calibrated_draws_are_found_calibrated_and_sharpened_ones_are_not(draw):
    assert z_score(*draw(1.0)) < 4
    assert z_score(*draw(1.5)) > 8
    assert calibration.reliability(*draw(1.0)).ece < 0.02
    assert calibration.reliability(*draw(1.5)).ece > 0.04


def test_calibrated_scores_have_their_expected_value():
    p, y = binary(20_000, digits=12)
    for score, value in (
        (calibration.brier, p * (1 - p)),
        (calibration.log_loss, -p * np.log(p) - (1 - p) * np.log(1 - p)),
        (calibration.accuracy, np.maximum(p, 1 - p)),
    ):
        each = np.array([score(p[i : i + 100], y[i : i + 100]) for i in range(0, len(p), 100)])
        expected = np.mean(value)
        assert abs(score(p, y) - expected) < 5 * each.std() / np.sqrt(len(each))


def test_risk_coverage_by_hand():
    # confidence 0.9 right; 0.8 right and wrong, in either order; 0.6 wrong
    curve = calibration.risk_coverage([0.9, 0.8, 0.2, 0.6], [1, 1, 1, -1])
    assert np.allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    assert np.allclose(curve.accuracy, [1, (1 + 0.5) / 2, 2 / 3, 2 / 4])
    assert curve.at(0.5) == curve.accuracy[1]
    assert curve.at(0.51) == curve.accuracy[2]
    assert curve.at(1.0) == calibration.accuracy([0.9, 0.8, 0.2, 0.6], [1, 1, 1, -1])
    with pytest.raises(ValueError, match="coverage must lie"):
        curve.at(0.0)


def test_errors_that_cannot_be_told_apart():
    assert calibration.error_detection_auroc([0.8, 0.8, 0.2], [1, -1, -1]) == 0.5
    assert calibration.error_detection_auroc([0.9, 0.6], [1, -1]) == 1.0
    assert np.isnan(calibration.error_detection_auroc([0.9, 0.6], [1, 1]))
    assert np.isnan(calibration.error_detection_auroc([0.9, 0.6], [-1, -1]))


def test_one_half_is_plus_one():
    assert calibration.accuracy([0.5], [1]) == 1
    assert calibration.accuracy([0.5], [-1]) == 0


def test_rounding_does_not_decide_between_equal_classes():
    p = [[0.25, 0.375 - 1e-14, 0.375 + 1e-14]]
    assert calibration.accuracy(p, [1]) == 1
    assert calibration.accuracy(p, [2]) == 0


def test_confusion_agrees_with_scikit_learn():
    p, y = many_classes()
    assert (calibration.confusion(p, y) == metrics.confusion_matrix(y, p.argmax(axis=1))).all()
    assert np.trace(calibration.confusion(p, y)) == round(calibration.accuracy(p, y) * len(p))
    p, y = binary()
    table = metrics.confusion_matrix(y, np.where(p >= 0.5, 1, -1))
    assert (calibration.confusion(p, y) == table).all()
    p = np.where(p == 0.5, 0.51, p)
    assert (calibration.confusion(np.column_stack([1 - p, p]), y > 0) == calibration.confusion(p, y)).all()
    assert calibration.confusion([[0.2, 0.5, 0.3]], [2]).tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_the_temperature_of_constant_probabilities_is_a_ratio_of_logits():
    y = np.repeat([1, -1], [70, 30])
    expected = np.log(0.9 / 0.1) / np.log(0.7 / 0.3)
    found = calibration.temperature(np.full(100, 0.9), y)
    assert np.isclose(found, expected, rtol=1e-5)
    assert np.allclose(calibration.apply_temperature(np.full(100, 0.9), found), 0.7, rtol=1e-5)
    # of three classes of which the others are equal: p / q = (n_right / (n_wrong / 2))^T
    p, truth = np.tile([0.8, 0.1, 0.1], (100, 1)), np.repeat([0, 1, 2], [60, 30, 10])
    assert np.isclose(calibration.temperature(p, truth), np.log(8) / np.log(60 / 20), rtol=1e-5)


def test_temperatures_multiply():
    p, y = many_classes()
    found = calibration.temperature(p, y)
    for t in (0.5, 3.0):
        scaled = calibration.apply_temperature(p, t)
        assert np.allclose(scaled.sum(axis=1), 1)
        assert np.isclose(calibration.temperature(scaled, y), found / t, rtol=1e-4)
        assert np.allclose(calibration.apply_temperature(scaled, 1 / t), p, atol=1e-12)
    assert np.allclose(calibration.apply_temperature(p, 1.0), p)


def test_the_temperature_finds_how_far_probabilities_were_sharpened():
    assert abs(np.log(calibration.temperature(*many_classes(20_000)))) < 0.05
    p, y = many_classes(20_000, sharpness=1.5)
    found = calibration.temperature(p, y)
    assert np.isclose(found, 1.5, rtol=0.05)
    best = calibration.log_loss(calibration.apply_temperature(p, found), y)
    assert best < min(calibration.log_loss(calibration.apply_temperature(p, t * found), y) for t in (0.98, 1.02))
    assert calibration.reliability(calibration.apply_temperature(p, found), y).ece < 0.02


def test_the_temperature_is_bounded_and_a_belief_holds_it_back():
    right = np.tile([0.6, 0.3, 0.1], (10, 1))
    for certain in (right, np.tile([0.99, 0.005, 0.005], (10, 1)), np.eye(3)[np.zeros(10, int)]):
        assert np.isclose(calibration.temperature(certain, np.zeros(10, int)), 0.05, rtol=1e-3)
    assert np.isclose(calibration.temperature(right, np.full(10, 2)), 20, rtol=1e-3)
    held = [calibration.temperature(right, np.zeros(10, int), spread=spread) for spread in (1e-4, 0.3, 1.0)]
    assert np.isclose(held[0], 1, atol=1e-3)
    assert held[0] > held[1] > held[2] > 0.05


def test_the_forms_of_a_temperature_agree():
    p, y = binary()
    columns = np.column_stack([1 - p, p])
    assert np.isclose(calibration.temperature(p, y), calibration.temperature(columns, y > 0), rtol=1e-6)
    assert np.allclose(calibration.apply_temperature(p, 2.0), calibration.apply_temperature(columns, 2.0)[:, 1])
    assert calibration.apply_temperature([0.0, 0.5, 1.0], 3.0).tolist() == [0, 0.5, 1]


def test_known_shares_are_met_and_odds_between_rows_stay():
    p, _ = many_classes(n_classes=3)
    shares = np.array([0.7, 0.25, 0.05])
    found = calibration.match_shares(p, shares)
    assert np.allclose(found.mean(axis=0), shares, atol=1e-7)
    assert np.allclose(found.sum(axis=1), 1)
    odds = found / p
    assert np.allclose(odds[:, 1] / odds[:, 0], odds[0, 1] / odds[0, 0], rtol=1e-9)
    assert np.allclose(calibration.match_shares(p, p.mean(axis=0)), p, atol=1e-7)


def test_known_shares_undo_what_labels_drawn_evenly_left_out():
    """Two Gaussians, one nine times as frequent: Bayes' rule with even shares in, that with the true ones out."""
    rng = np.random.default_rng(0)
    truth = (rng.random(40_000) < 0.1).astype(int)
    x = rng.standard_normal(truth.size) + 2 * truth
    odds = np.exp(2 * x - 2)
    even, exact = (
        np.column_stack([np.ones_like(x), each * odds]) / (1 + each * odds)[:, None] for each in (1, 1 / 9)
    )
    found = calibration.match_shares(even, [0.9, 0.1])
    assert np.abs(found - exact).max() < 0.01
    assert np.abs(even - exact).max() > 0.4


def test_a_class_that_no_row_can_be_of_has_no_share():
    with pytest.raises(ValueError, match="No row can be of class 1"):
        calibration.match_shares([[1.0, 0.0], [1.0, 0.0]], [0.5, 0.5])


def test_shares_that_zeros_rule_out_are_refused():
    """Two of three rows are of class 0 whatever its weight: two thirds can be met, a tenth cannot."""
    p = [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]
    assert np.allclose(calibration.match_shares(p, [0.7, 0.3]).mean(axis=0), [0.7, 0.3])
    with pytest.raises(ValueError, match="of class 0 cannot be met"):
        calibration.match_shares(p, [0.1, 0.9])


def test_shares_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="probability is empty"):
        calibration.match_shares(np.empty((0, 2)), [0.5, 0.5])


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.0, 0.0], [0.3, 0.3, 0.4], [np.nan, 0.5], 0.5])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        calibration.match_shares([[0.2, 0.8], [0.5, 0.5]], shares)


def test_probabilities_in_single_precision_are_taken():
    p, y = many_classes(n_classes=10)
    single = calibration.brier(p.astype(np.float32), y)
    assert np.isclose(single, calibration.brier(p, y), rtol=1e-5)


@pytest.mark.parametrize(
    ("probability", "truth", "words"),
    [
        ([], [], "empty"),
        ([0.5, 1.2], [1, 1], "between 0 and 1, got 1.2"),
        ([0.5, np.nan], [1, 1], "between 0 and 1, got nan"),
        ([0.5, 0.5], [1], "one class for each node"),
        ([0.5, 0.5], [1, 2], "-1 or \\+1 \\(or 0 or 1\\), got 2"),
        ([0.5, 0.5, 0.5], [1, -1, 0], "got 0"),
        ([[0.5], [0.5]], [0, 0], "2 or more classes"),
        ([[0.5, 0.4]], [0], "add up to 1, got 0.9 in row 0"),
        ([[0.5, 0.5]], [2], "column number, 0 to 1, got 2"),
        ([[0.5, 0.5]], [-1], "column number"),
        (0.5, 1, "shape"),
    ],
)
def test_bad_input_is_refused(probability, truth, words):
    with pytest.raises(ValueError, match=words):
        calibration.summary(probability, truth)


def test_bad_bins_are_refused():
    with pytest.raises(ValueError, match="n_bins"):
        calibration.reliability([0.5], [1], n_bins=0)


def test_bad_temperatures_are_refused():
    with pytest.raises(ValueError, match="temperature must be a finite number above 0"):
        calibration.apply_temperature([0.5], 0.0)
    with pytest.raises(ValueError, match="spread must be positive"):
        calibration.temperature([0.5], [1], spread=0.0)
