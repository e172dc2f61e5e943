"""A size and a seed in; a synthetic long-wave-infrared video of a gas plume, with ground truth, out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect_generator, expect_number, expect_whole

_Float32 = NDArray[np.float32]
_Float64 = NDArray[np.float64]

# Ground materials: level of the emissivity, and depth, center in um and width in um of an absorption band.
_MATERIALS = (
    (0.985, 0.00, 10.0, 1.0),  # vegetation
    (0.970, 0.07, 9.6, 0.5),  # clay
    (0.980, 0.22, 8.7, 0.5),  # quartz sand
    (0.960, 0.06, 11.3, 0.2),  # limestone
)
# Absorption lines of the gas: strength (1 is the strongest), center in um, half width in um.
_LINES = ((0.40, 8.85, 0.04), (0.55, 9.55, 0.04), (1.00, 10.35, 0.05), (0.80, 10.75, 0.05))
_GROUND_KELVIN, _SKY_KELVIN, _GAS_KELVIN = 293.0, 250.0, 286.0
_RELEASE = 0.008  # gives the core of the plume an optical depth of about 1
_BLOCK = 8192  # nodes computed at a time: a few MB of work space


@dataclass(frozen=True, eq=False)
class Plume:
    """A synthetic video with its ground truth. Every pixel of every frame is a node.

    Attributes:
        X: radiance in W / (m^2 sr um), float32, shape (N, n_channels), N = n_frames height width.
        concentration: gas along the line of sight, as the optical depth of its strongest line, shape (N,).
        mask: whether the concentration exceeds 0.1, shape (N,).
        wavelengths: wavelengths of the channels in nm, shape (n_channels,).
        grid_shape: (n_frames, height, width), to which a vector over the nodes can be reshaped.
        source: says that the video is synthetic.
    """

    X: _Float32
    concentration: _Float32
    mask: NDArray[np.bool_]
    wavelengths: _Float64
    grid_shape: tuple[int, int, int]
    source: str = "Synthetic long-wave-infrared video of a gas plume, made by graphuq."


def plume(
    seed: int = 0,
    *,
    n_frames: int = 7,
    height: int = 128,
    width: int = 320,
    n_channels: int = 129,
    noise: float = 0.05,
) -> Plume:
    """A synthetic video of a cool gas plume that drifts and spreads over warm ground.

    ``radiance = t (e B(T) + (1 - e) B(T_sky)) + (1 - t) B(T_gas) + noise xi``, with Planck's law B,
    the emissivity e of a smooth mixture of materials, a smooth ground temperature T, and the
    transmission of the gas ``t = exp(-concentration * absorption)`` (Beer and Lambert).
    The noise of 0.05 W / (m^2 sr um) is about 0.35 K.

    The channels run from 7,830 to 11,670 nm, in steps of 30 nm if there are 129.
    A substitute for the video of Sec. 5.1, which is not public.
    """
    for name, value, least in (
        ("n_frames", n_frames, 1),
        ("height", height, 8),
        ("width", width, 8),
        ("n_channels", n_channels, 16),
    ):
        expect_whole(value, name, least)
    expect_number(noise, "noise", zero=True)
    rng = expect_generator(seed)
    wavelengths = np.linspace(7830.0, 11670.0, n_channels)
    um = (wavelengths / 1000).astype(np.float32)
    emissivity = np.stack(
        [level - depth * np.exp(-(((um - at) / wide) ** 2) / 2) for level, depth, at, wide in _MATERIALS]
    )
    absorption = np.sum([strength / (1 + ((um - at) / half) ** 2) for strength, at, half in _LINES], axis=0)
    sky, gas = _planck(um, _SKY_KELVIN), _planck(um, _GAS_KELVIN)

    share = np.stack([np.exp(3 * _smooth_field(rng, height, width, 0.1)) for _ in _MATERIALS], axis=1)
    share /= share.sum(axis=1, keepdims=True)
    ground = _GROUND_KELVIN + 1.5 * _smooth_field(rng, height, width, 0.15)
    ground += _smooth_field(rng, height, width, 0.02)
    concentration = _concentration(rng, n_frames, height, width)

    X = np.empty((concentration.size, n_channels), dtype=np.float32)
    for start in range(0, concentration.size, _BLOCK):
        radiance = X[start : start + _BLOCK]
        frame, pixel = np.divmod(np.arange(start, start + len(radiance)), height * width)
        T = ground[pixel] + np.float32(0.1) * frame.astype(np.float32)  # the ground warms by 0.1 K per frame
        behind = sky + (share[pixel] @ emissivity) * (_planck(um, T[:, None]) - sky)
        t = np.exp(-concentration[start : start + _BLOCK, None] * absorption)
        rng.standard_normal(out=radiance, dtype=np.float32)
        radiance *= np.float32(noise)
        radiance += gas + t * (behind - gas)
    return Plume(X, concentration, concentration > 0.1, wavelengths, (n_frames, height, width))


def _planck(um: _Float32, kelvin: float | _Float32) -> _Float32:
    """Radiance of a black body in W / (m^2 sr um): ``2 h c^2 / l^5 / (exp(h c / (l k T)) - 1)``."""
    return 1.191043e8 / um**5 / np.expm1(14387.77 / (um * kelvin))


def _smooth_field(rng: np.random.Generator, height: int, width: int, scale: float) -> _Float32:
    """White noise with a Gaussian blur of ``scale * height`` pixels, mean 0 and variance 1, shape (n_pixels,)."""
    k2 = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width) ** 2
    noise = np.fft.rfft2(rng.standard_normal((height, width)))
    field = np.fft.irfft2(noise * np.exp(-2 * (np.pi * scale * height) ** 2 * k2), s=(height, width))
    return ((field - field.mean()) / field.std()).ravel().astype(np.float32)


def _concentration(rng: np.random.Generator, n_frames: int, height: int, width: int) -> _Float32:
    """Concentration of a gas released steadily from one point, for all pixels of all frames, shape (N,).

    A frame is the sum of Gaussian puffs of all ages since the release began: the older a puff, the
    farther downwind and the wider it is. Eddies that drift with the wind make the plume uneven.
    Lengths are fractions of the width or the height, times are fractions of the video.
    """
    x = (np.arange(width) + 0.5) / width
    y = (np.arange(height) + 0.5) / height
    eddies = np.exp(0.5 * _smooth_field(rng, height, width, 0.06)).reshape(height, width)
    frames = []
    for now in np.arange(1, n_frames + 1) / n_frames:
        age = np.linspace(0, now, 200)[:, None]
        x_puff, x_spread = 0.15 + 0.6 * age, 0.02 + 0.05 * age
        y_puff, y_spread = 0.7 - 0.35 * age + 0.03 * np.sin(9 * (now - age)), 0.04 + 0.09 * age
        along = np.exp(-(((x - x_puff) / x_spread) ** 2) / 2) / x_spread
        across = np.exp(-(((y - y_puff) / y_spread) ** 2) / 2) / y_spread
        drifted = np.roll(eddies, round(0.6 * now * width), axis=1)
        frames.append(_RELEASE * now / len(age) * drifted * (across.T @ along))
    return np.stack(frames).ravel().astype(np.float32)
