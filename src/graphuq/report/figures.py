"""Figures: a spectrum, priors and posteriors in, matplotlib figures out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphuq.spectrum.result import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue to orange through light gray: told apart by every common kind of color vision.
DIVERGING = "PuOr"
CLASS_COLORS = {1: "#0072B2", -1: "#D55E00"}
CLASS_MARKERS = {1: "o", -1: "s"}


def plot_spectrum(axes: Axes, spectrum: Spectrum) -> None:
    """The eigenvalues of the Laplacian in order (Fig. 2 of the paper)."""
    axes.plot(spectrum.values, ".", markersize=3, color="#333333")
    axes.set(xlabel="index j", ylabel=r"eigenvalue $\lambda_j$", title="Spectrum of the Laplacian")
    axes.set_ylim(bottom=-0.03)
    axes.grid(alpha=0.25)


def plot_embedding(
    axes: Axes,
    spectrum: Spectrum,
    color: NDArray[Any],
    *,
    labeled: NDArray[Any],
    y: NDArray[Any],
    title: str,
    color_label: str,
) -> None:
    """Nodes in the plane of the eigenvectors q_1 and q_2, colored by a number in [-1, 1]; labels marked."""
    first, second = spectrum.vectors[:, 1], spectrum.vectors[:, 2]
    order = np.argsort(-np.abs(color))  # the unsure ones are drawn last, on top
    dots = axes.scatter(
        first[order], second[order], c=color[order], cmap=DIVERGING, vmin=-1, vmax=1, s=14,
        linewidths=0.2, edgecolors="#555555",
    )  # fmt: skip
    for label, name in ((1, "labeled +1"), (-1, "labeled −1")):
        mine = labeled[y == label]
        axes.scatter(
            first[mine], second[mine], s=90, marker=CLASS_MARKERS[label], facecolors="none",
            edgecolors="black", linewidths=1.6, label=name,
        )  # fmt: skip
    axes.set(xlabel="$q_1$", ylabel="$q_2$", title=title, xticks=[], yticks=[])
    axes.legend(loc="best", fontsize=8, framealpha=0.9)
    axes.figure.colorbar(dots, ax=axes, label=color_label, fraction=0.046, pad=0.03)


def overview(
    spectrum: Spectrum,
    label_mean: NDArray[Any],
    *,
    labeled: NDArray[Any],
    y: NDArray[Any],
    prior_draw: NDArray[Any],
    title: str,
) -> Figure:
    """Spectrum, a draw from the prior, and the posterior label means, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plot_spectrum(left, spectrum)
    size = np.abs(prior_draw).max()
    plot_embedding(
        middle, spectrum, prior_draw / size, labeled=labeled, y=y,
        title="Before: one draw from the prior", color_label="u (scaled)",
    )  # fmt: skip
    plot_embedding(
        right, spectrum, label_mean, labeled=labeled, y=y,
        title="After: posterior mean of each label", color_label=r"label mean $s_j$",
    )  # fmt: skip
    figure.suptitle(title)
    return figure
