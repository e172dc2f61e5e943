import numpy as np
import pytest

from graphuq.app.report.palette import DARK, LIGHT, SHAPES, _lab, colors, variables


def parsed(color):
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def test_the_space_of_the_eye():
    """The OKLab coordinates of white, red and blue that Ottosson gives."""
    known = {(1, 1, 1): (1, 0, 0), (1, 0, 0): (0.628, 0.225, 0.126), (0, 0, 1): (0.452, -0.032, -0.312)}
    for rgb, lab in known.items():
        np.testing.assert_allclose(_lab(rgb), lab, atol=2e-3)


@pytest.mark.parametrize("dark", [False, True])
def test_colors_are_told_apart(dark):
    """The first eight are those of Okabe and Ito; those of more classes are as far from each other as 0.04."""
    found = colors(40, dark=dark)
    assert tuple(found[:8]) == (DARK if dark else LIGHT)
    assert found[:12] == colors(12, dark=dark)
    places = np.array([_lab(parsed(each)) for each in found])
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    assert distance[np.triu_indices(40, 1)].min() > 0.04
    page = _lab([0.11, 0.12, 0.14] if dark else [1, 1, 1])
    assert np.linalg.norm(places - page, axis=1).min() > 0.2


def test_two_themes_have_a_color_for_each_class_and_chain():
    text = variables(3)
    assert text.count("--k7:") == 2
    assert "--k8:" not in text
    assert variables(11).count("--k10:") == 2
    assert len(set(SHAPES)) == 8
