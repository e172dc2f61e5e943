import numpy as np
import pytest
from matplotlib.colors import to_rgb

from graphuq.app.report.figures import MIDDLE, faded, overview
from graphuq.app.report.palette import colors


def test_colors_fade_with_confidence():
    """Gray where all classes are equally probable, the class's own color where it is sure, halfway between."""
    p = np.array([[1 / 3] * 3, [0, 0, 1], [0, 2 / 3, 1 / 3]])
    found = faded(p)
    np.testing.assert_allclose(found[0], to_rgb(MIDDLE))
    np.testing.assert_allclose(found[1], to_rgb(colors(3)[2]))
    np.testing.assert_allclose(found[2], (np.array(to_rgb(MIDDLE)) + to_rgb(colors(3)[1])) / 2)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_overview(n_classes, classifier, three, tmp_path):
    """The colors of the dots are those of the label means, whatever the number of classes."""
    fitted = classifier if n_classes == 2 else three
    mean, labels = fitted.posterior_.label_mean(), fitted.labels_
    figure = overview(
        fitted.spectrum_, mean, labeled=labels.nodes, y=labels.y, title="A title",
        prior_draw=fitted.posterior_.prior.sample()[0], classes=list(fitted.classes_),
    )  # fmt: skip
    figure.savefig(tmp_path / "overview.png")
    dots, *marks = figure.axes[2].collections
    names = [text.get_text() for text in figure.axes[2].get_legend().get_texts()]
    assert names == [f"labeled {name}" for name in fitted.classes_]
    assert [len(each.get_offsets()) for each in marks] == [5] * n_classes
    place = {tuple(xy): i for i, xy in enumerate(fitted.spectrum_.vectors[:, 1:3])}
    order = [place[tuple(xy)] for xy in dots.get_offsets().data]
    if n_classes == 2:
        np.testing.assert_allclose(dots.get_array(), mean[order])
    else:
        np.testing.assert_allclose(dots.get_facecolors()[:, :3], faded(mean)[order])
