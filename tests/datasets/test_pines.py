import sys

import numpy as np
import pytest

from graphuq.datasets import indian_pines


def test_scene():
    pytest.importorskip("tensorly")
    scene = indian_pines()
    assert scene.X.shape == (145 * 145, 200)
    assert scene.X.dtype == np.float64
    assert scene.grid_shape == (145, 145)
    assert len(scene.feature_names) == 200
    assert scene.feature_names[0] == "400.02 nm"
    # Pixels of each class as published with the ground truth; 0 is unlabeled.
    published = [10776, 46, 1428, 830, 237, 483, 730, 28, 478, 20, 972, 2455, 593, 205, 1265, 386, 93]
    assert np.bincount(scene.y).tolist() == published
    assert list(scene.class_names) == list(range(17))


def test_pixels_and_labels_are_in_the_same_order():
    pytest.importorskip("tensorly")
    scene = indian_pines()
    scaled = scene.X / scene.X.std(axis=0)

    def spread_within_classes(labels):
        return np.mean([scaled[labels == k].var(axis=0).mean() for k in range(1, 17)])

    transposed = scene.y.reshape(scene.grid_shape).T.ravel()
    assert spread_within_classes(scene.y) < 0.7 * spread_within_classes(transposed)


def test_without_tensorly_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorly.datasets.data_imports", None)
    with pytest.raises(ImportError, match=r"pip install 'graphuq\[indian-pines\]'"):
        indian_pines()
