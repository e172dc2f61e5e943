"""A spectrum in; two clusters of nodes, without labels, out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphuq._expect import expect
from graphuq.spectrum.result import Spectrum


def fiedler(spectrum: Spectrum) -> NDArray[np.int64]:
    """Spectral clustering in two: the sign of the Fiedler vector q_1 (Sec. 2.2), +1 or -1 for each node.

    The threshold 0 is equivalent to thresholding ``D^{-1/2} q_1`` at 0 for the normalized Laplacian. Which cluster
    is +1 is arbitrary.
    """
    expect(spectrum, Spectrum, "spectrum", "a Spectrum, as spectrum.dense(laplacian) makes")
    if spectrum.n_modes < 2:
        raise ValueError("The Fiedler vector is the second mode, but the spectrum has only one.")
    if spectrum.n_components > 1:
        raise ValueError(
            f"The graph falls into {spectrum.n_components} components, so its Fiedler vector is not unique. "
            "Join more neighbors, or cluster each component by itself."
        )
    return np.where(spectrum.vectors[:, 1] >= 0, 1, -1)
