"""The name of a hyperspectral scene in; its cosine graph's exact spectrum, labels, and the truth about it, out."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphuq.spectrum import Spectrum

# Indian Pines was flown over in June: corn and soybean had just come up, so their fields are mostly bare soil.
TILLED = (2, 3, 4, 10, 11, 12)
GREEN = (1, 5, 6, 7, 8, 9, 13, 14)

# The posteriors of a scene, in words; the last keeps the constant mode, which the paper's priors do not.
METHODS = {
    "projection": "projection",
    "approximation": "approximation",
    "exact": "exact",
    "constant": "projection with q_0",
}
EDGE = 3  # pixels


@dataclass(frozen=True)
class Scene:
    """A scene whose every pixel of every frame is a node.

    Attributes:
        modes: all eigenpairs of the cosine graph but those of eigenvalue exactly 1.
        truth: +1 or -1 for each node, 0 where nobody knows.
        shape: (n_frames, height, width).
        concentration: of the gas, where that is known.
    """

    modes: Spectrum
    truth: NDArray[Any]
    shape: tuple[int, int, int]
    concentration: NDArray[Any] | None = None

    def labels(self, kind: str) -> NDArray[Any]:
        """+1, -1 or 0 for each node: "clusters", the sign of the Fiedler vector, or "truth".

        Clusters have no names: the one that overlaps more with the true +1 is called +1.
        """
        from graphuq import baselines

        if kind == "truth":
            return self.truth
        clusters = baselines.fiedler(self.modes)
        return clusters if np.mean(clusters * self.truth) >= -np.mean(clusters * self.truth) else -clusters


def plume(n_frames: int, height: int, width: int) -> Scene:
    """The synthetic video of a gas plume: +1 is gas."""
    from graphuq import datasets, graph, spectrum

    video = datasets.plume(0, n_frames=n_frames, height=height, width=width)
    modes = spectrum.low_rank(graph.cosine(video.X))
    return Scene(modes, np.where(video.mask, 1, -1), video.grid_shape, video.concentration)


def indian_pines() -> Scene:
    """The airborne scene Indian Pines: +1 is tilled soil under young crops, -1 is green."""
    from graphuq import datasets, graph, spectrum

    pines = datasets.indian_pines()
    truth = np.isin(pines.y, TILLED).astype(np.int64) - np.isin(pines.y, GREEN)
    assert pines.grid_shape is not None
    return Scene(spectrum.low_rank(graph.cosine(pines.X)), truth, (1, *pines.grid_shape))


def near_edge(y: NDArray[Any], shape: tuple[int, int, int], distance: int) -> NDArray[np.bool_]:
    """Whether a pixel of another class lies within so many pixels, in the same frame."""
    from scipy.ndimage import maximum_filter, minimum_filter

    size = (1, 2 * distance + 1, 2 * distance + 1)
    frames = y.reshape(shape)
    return (maximum_filter(frames, size) != minimum_filter(frames, size)).ravel()


def pack(values: NDArray[Any]) -> str:
    """Numbers in [-1, 1] to two decimals, as text."""
    return base64.b64encode(zlib.compress(np.round(100 * values).astype(np.int8).tobytes(), 9)).decode()


def unpack(text: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of `pack`."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.int8).reshape(shape) / 100
