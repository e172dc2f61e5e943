import numpy as np
import pytest
from matplotlib.colors import to_rgb

from graphuq.app.report.palette import DARK, LIGHT, SHAPES, colors, variables

CONES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def lab(color):
    """Coordinates in the perceptual color space OKLab."""
    return LAB @ np.cbrt(CONES @ ((np.array(to_rgb(color)) + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize(("palette", "page"), [(LIGHT, "#ffffff"), (DARK, "#1c1f25")])
def test_colors_are_told_apart(palette, page):
    places = np.array([lab(each) for each in palette])
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    assert distance[np.triu_indices(len(palette), 1)].min() > 0.05
    assert np.linalg.norm(places - lab(page), axis=1).min() > 0.2


def test_200_classes_differ_in_color_or_shape():
    assert len(LIGHT) == len(DARK)
    for dark in (False, True):
        assert len({(color, SHAPES[k % len(SHAPES)]) for k, color in enumerate(colors(200, dark=dark))}) == 200


def test_two_themes_have_a_color_for_each_class_and_chain():
    text = variables(3)
    assert text.count("--k7:") == 2
    assert "--k8:" not in text
    assert variables(11).count("--k10:") == 2
    assert len(set(SHAPES)) == 8
