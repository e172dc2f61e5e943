import numpy as np
import pytest

from graphuq.datasets import two_moons


def test_without_noise_the_points_lie_on_the_two_half_circles():
    moons = two_moons(501, n_features=7, noise=0.0)
    upper, lower = moons.X[moons.y == 1], moons.X[moons.y == -1]
    assert (len(upper), len(lower)) == (251, 250)
    np.testing.assert_allclose(np.hypot(upper[:, 0], upper[:, 1]), 1, rtol=1e-12)
    np.testing.assert_allclose(np.hypot(lower[:, 0] - 1, lower[:, 1] - 0.5), 1, rtol=1e-12)
    assert upper[:, 1].min() >= 0
    assert lower[:, 1].max() <= 0.5
    assert not moons.X[:, 2:].any()


def test_angles_are_uniform_on_both_moons():
    moons = two_moons(4000, noise=0.0)
    mean_x = np.array([moons.X[moons.y == label, 0].mean() for label in (1, -1)])
    # cos t has variance 1/2; the second mean is shifted by the center.
    z = (mean_x - [0, 1]) / np.sqrt(0.5 / 2000)
    assert np.abs(z).max() < 5


@pytest.mark.parametrize(("claimed", "holds"), [(0.06, True), (0.06 * 1.05, False)])
def test_noise_has_the_given_deviation_in_every_dimension(claimed, holds):
    difference = two_moons(2000, noise=0.06).X - two_moons(2000, noise=0.0).X
    z = ((difference / claimed) ** 2 - 1).sum(axis=0) / np.sqrt(2 * 2000)
    assert (np.abs(z).max() < 5 and np.abs(z.sum() / 10) < 5) == holds


def test_the_seed_decides():
    first, again, other = two_moons(20, seed=1), two_moons(20, seed=1), two_moons(20, seed=2)
    np.testing.assert_array_equal(first.X, again.X)
    assert np.abs(first.X - other.X).max() > 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_nodes": 1}, "n_nodes must be a whole number of at least .*, got 1"),
        ({"n_features": 1}, "n_features must be a whole number of at least .*, got 1"),
        ({"noise": -0.1}, "noise must be a finite number, 0 or above, got -0.1"),
        ({"noise": float("nan")}, "noise must be a finite number, 0 or above, got nan"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        two_moons(**settings)
