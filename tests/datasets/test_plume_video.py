import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.metrics import roc_auc_score

from graphuq.datasets import plume, plume_video

SMALL = {"n_frames": 3, "height": 32, "width": 80}


def test_shapes_and_channels():
    video = plume(n_frames=2, height=8, width=20)
    assert video.X.shape == (2 * 8 * 20, 129)
    assert video.X.dtype == np.float32
    assert video.grid_shape == (2, 8, 20)
    np.testing.assert_allclose(video.wavelengths, 7830 + 30 * np.arange(129))
    assert video.concentration.shape == video.mask.shape == (2 * 8 * 20,)
    assert plume(n_frames=1, height=8, width=20, n_channels=40).X.shape == (160, 40)
    assert "ynthetic" in video.source


def test_radiance_is_positive_and_that_of_a_mild_day():
    video = plume(**SMALL)
    assert np.isfinite(video.X).all()
    um = (video.wavelengths / 1000).astype(np.float32)
    cold, warm = plume_video._planck(um, 270.0), plume_video._planck(um, 305.0)
    assert (cold > 0).all()
    assert (cold < video.X).all()
    assert (warm > video.X).all()


def test_planck_agrees_with_stefan_and_boltzmann():
    total, _ = quad(lambda um: plume_video._planck(np.float64(um), 300.0), 1, 1000, limit=200)
    assert total == pytest.approx(5.670374e-8 * 300**4 / np.pi, rel=1e-4)


def test_the_seed_decides():
    first, again, other = plume(1, **SMALL), plume(1, **SMALL), plume(2, **SMALL)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.concentration, again.concentration)
    assert not np.array_equal(first.concentration, other.concentration)


def test_the_blocks_do_not_show(monkeypatch):
    whole = plume(n_frames=2, height=8, width=20)
    monkeypatch.setattr(plume_video, "_BLOCK", 37)
    np.testing.assert_allclose(plume(n_frames=2, height=8, width=20).X, whole.X, rtol=1e-6)


def test_gas_follows_beer_and_lambert(monkeypatch):
    video = plume(noise=0.0, **SMALL)
    monkeypatch.setattr(plume_video, "_RELEASE", 0.0)
    behind = plume(noise=0.0, **SMALL).X
    gas = plume_video._planck((video.wavelengths / 1000).astype(np.float32), 286.0)
    line = int(np.flatnonzero(video.wavelengths == 10350)[0])
    thick = video.mask & (behind[:, line] > gas[line] + 0.3)
    transmission = (video.X[thick, line] - gas[line]) / (behind[thick, line] - gas[line])
    # The strongest line has strength 1 at its center, and the tails of the others add less than 2%.
    depth = -np.log(transmission) / video.concentration[thick]
    assert thick.sum() > 100
    assert depth.min() > 0.999
    assert depth.max() < 1.02


def test_the_plume_drifts_spreads_and_grows():
    video = plume(n_frames=5, height=32, width=80)
    frames = video.concentration.reshape(video.grid_shape)
    assert frames.min() >= 0
    x = np.arange(80)
    share = frames.sum(axis=1) / frames.sum(axis=(1, 2))[:, None]
    center = share @ x
    spread = np.sqrt(share @ x**2 - center**2)
    covered = video.mask.reshape(video.grid_shape).mean(axis=(1, 2))
    for growing in (center, spread, covered):
        assert (np.diff(growing) > 0).all()
    np.testing.assert_array_equal(video.mask, video.concentration > 0.1)


def auc_from_eigenvectors(X, mask, n_modes):
    """How well a linear rule on eigenvectors of the cosine graph finds the plume in unseen pixels."""
    Xn = X / np.linalg.norm(X.astype(float), axis=1, keepdims=True)
    scaled = Xn / np.sqrt(Xn @ Xn.sum(axis=0))[:, None]
    modes = np.linalg.eigh(scaled.T @ scaled)[1][:, -n_modes:]
    Q = scaled @ modes
    features = np.column_stack([Q[:, :-1] / Q[:, -1:], np.ones(len(Q))])
    features /= np.linalg.norm(features, axis=0)
    rule = np.linalg.lstsq(features[::2], mask[::2].astype(float), rcond=None)[0]
    return roc_auc_score(mask[1::2], features[1::2] @ rule)


def test_the_plume_shows_in_the_cosine_graph_but_not_at_once(monkeypatch):
    video = plume(**SMALL)
    assert auc_from_eigenvectors(video.X, video.mask, 40) > 0.97
    assert auc_from_eigenvectors(video.X, video.mask, 3) < 0.9
    monkeypatch.setattr(plume_video, "_RELEASE", 0.0)
    assert auc_from_eigenvectors(plume(**SMALL).X, video.mask, 40) < 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_frames": 0}, "n_frames must be a whole number of at least .*, got 0"),
        ({"height": 7}, "height must be a whole number of at least .*, got 7"),
        ({"width": 0}, "width must be a whole number of at least .*, got 0"),
        ({"n_channels": 3}, "n_channels must be a whole number of at least .*, got 3"),
        ({"noise": -1.0}, "noise must be a finite number, 0 or above, got -1.0"),
        ({"noise": float("inf")}, "noise must be a finite number, 0 or above, got inf"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        plume(**settings)
