"""Our answers in a record, computed anew."""

import numpy as np
import pytest
from experiments import ours_again, table_scores
from experiments.table_peers import BARE, SHARES
from experiments.table_scores import OURS

OTHER = "another tool"


def results(ours, shares=0.7):
    """Two data sets of two draws each, on which we have these log-losses."""
    rng = np.random.default_rng(0)
    found = []
    for (data, seed), loss in zip(((data, seed) for data in "ab" for seed in range(2)), ours, strict=True):
        scores = {name: [shares, 0.1, 0.5] for name in (SHARES, BARE)}
        scores |= {OURS: [loss, 0.05, 0.8], OTHER: [0.5 + 0.1 * rng.random(), 0.06, 0.7]}
        bins = {name: np.full((3, 10), loss).tolist() for name in (OURS, OTHER)}
        trial = {"group": "tables", "data": data, "n_labels": 20, "seed": seed}
        found.append({**trial, "scores": scores, "bins": bins, "wrong_label_auroc": None})
    return found


def test_ours_alone_is_replaced():
    before, after = [
        table_scores.summarized(results(ours)) for ours in ([0.4, 0.5, 0.6, 0.7], [0.1, 0.2, 0.3, 0.4])
    ]
    found = ours_again.merged(before, results([0.1, 0.2, 0.3, 0.4]))
    (group,), (expected,) = found["groups"], after["groups"]
    assert found["cells"] == after["cells"]
    assert group["scores"] == expected["scores"]
    assert found["bins"]["tables"]["20"][OTHER] is before["bins"]["tables"]["20"][OTHER]
    np.testing.assert_array_equal(found["bins"]["tables"]["20"][OURS], after["bins"]["tables"]["20"][OURS])
    for name in (OTHER, SHARES):
        mean, error = group["ours_beyond"][name]
        assert mean == pytest.approx(expected["ours_beyond"][name][0], abs=2e-4)
        each = [np.hypot(cell["scores"][OURS][0][1], cell["scores"][name][0][1]) for cell in found["cells"]]
        assert error == pytest.approx(np.linalg.norm(each) / 2, rel=0.05)


def test_other_labels_are_refused():
    before = table_scores.summarized(results([0.4, 0.5, 0.6, 0.7]))
    with pytest.raises(ValueError, match="other labels"):
        ours_again.merged(before, results([0.4, 0.5, 0.6, 0.7], shares=0.6))
    with pytest.raises(ValueError, match="does not have"):
        ours_again.merged({**before, "cells": before["cells"][:1]}, results([0.4, 0.5, 0.6, 0.7]))
