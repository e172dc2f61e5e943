"""A number of classes in; a color and a shape for each, distinguishable with any color vision, out."""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hls_to_rgb

import numpy as np
from numpy.typing import NDArray

# The eight colors of Okabe and Ito for a light and a dark page: two classes are vermilion and blue, or their
# lighter counterparts on dark; yellow is darker on light, and black is the color of the text.
LIGHT = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b5a500", "#1d1f24")
DARK = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#f0e442", "#e9eaec")
_CONES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
_LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
# Outlines in the square from -1 to 1, as SVG paths; further classes differ only in color.
SHAPES = (
    "M-.9-.9H.9V.9H-.9Z",
    "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1-1 0Z",
    "M0-1.15 1.1.85H-1.1Z",
    "M0-1.25 1.15 0 0 1.25-1.15 0Z",
    "M0 1.15 1.1-.85H-1.1Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "M0-1.1 1.05-.34.65.9H-.65L-1.05-.34Z",
    "M-1-.5-.5-1 0-.5.5-1 1-.5.5 0 1 .5.5 1 0 .5-.5 1-1 .5-.5 0Z",
)


def colors(n: int, *, dark: bool = False) -> list[str]:
    """n colors as #rrggbb: those of Okabe and Ito, then greedily the candidate farthest from all before."""
    chosen = list(DARK if dark else LIGHT)[:n]
    if len(chosen) == n:
        return chosen
    steps = np.linspace(0.2, 0.85, 14)
    wheel = np.array([hls_to_rgb(hue / 36, step, s) for hue in range(36) for step in steps for s in (0.35, 0.7)])
    candidates = np.array([_lab(rgb) for rgb in wheel])
    low, high = (0.6, 0.88) if dark else (0.36, 0.72)  # lightness with enough contrast to the page, not garish
    readable = (candidates[:, 0] > low) & (candidates[:, 0] < high)
    wheel, candidates = wheel[readable], candidates[readable]
    taken = [_lab([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for color in chosen]
    distance = np.min([np.linalg.norm(candidates - color, axis=1) for color in [*taken, _lab([0.6] * 3)]], axis=0)
    while len(chosen) < n:
        farthest = int(distance.argmax())
        chosen.append("#" + "".join(f"{round(255 * part):02x}" for part in wheel[farthest]))
        distance = np.minimum(distance, np.linalg.norm(candidates - candidates[farthest], axis=1))
    return chosen


def _lab(rgb: Sequence[float]) -> NDArray[np.float64]:
    """Coordinates in the perceptual color space OKLab (Ottosson 2020)."""
    linear = ((np.array(rgb) + 0.055) / 1.055) ** 2.4
    return np.asarray(_LAB @ np.cbrt(_CONES @ linear))


def variables(n: int) -> str:
    """The colors as CSS variables --k0, --k1, ... for both themes."""
    n = max(n, len(LIGHT))  # also used for the chains of a sampler
    light, dark = ("".join(f"--k{k}:{each};" for k, each in enumerate(colors(n, dark=d))) for d in (False, True))
    return f':root{{{light}}}:root[data-theme="dark"]{{{dark}}}'
