"""Figures: a spectrum, priors and posteriors in, matplotlib figures out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphuq import uncertainty
from graphuq.app.report.palette import colors
from graphuq.spectrum.result import Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue to orange through light gray: told apart by every common kind of color vision.
DIVERGING = "PuOr"
MIDDLE = "#c8c8c4"
MARKERS = "so^DvP*X"


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
    classes: Sequence[str],
    title: str,
    color_label: str,
) -> None:
    """Nodes in the plane of the eigenvectors q_1 and q_2; labels marked.

    Nodes are colored by a number in [-1, 1], or, where `color` has a column for each class, by the likeliest class,
    the paler the less sure it is.
    """
    first, second = spectrum.vectors[:, 1], spectrum.vectors[:, 2]
    signed = color.ndim == 1
    order = np.argsort(-np.abs(color)) if signed else uncertainty.ranked(color)[::-1]  # the unsure ones on top
    how: dict[str, Any] = {"cmap": DIVERGING, "vmin": -1, "vmax": 1} if signed else {}
    dots = axes.scatter(
        first[order], second[order], c=(color if signed else faded(color))[order], s=14,
        linewidths=0.2, edgecolors="#555555", **how,
    )  # fmt: skip
    shades = colors(len(classes))
    for k, name in enumerate(classes):
        mine = labeled[y == k]
        axes.scatter(
            first[mine], second[mine], s=90, marker=MARKERS[k % len(MARKERS)], edgecolors="black", linewidths=1.6,
            facecolors="none" if signed else shades[k], label=f"labeled {name}",
        )  # fmt: skip
    axes.set(xlabel="$q_1$", ylabel="$q_2$", title=title, xticks=[], yticks=[])
    axes.legend(loc="best", fontsize=8, framealpha=0.9, ncols=1 + (len(classes) - 1) // 8)
    if signed:
        axes.figure.colorbar(dots, ax=axes, label=color_label, fraction=0.046, pad=0.03)


def faded(p: NDArray[Any]) -> NDArray[np.float64]:
    """The color of the likeliest class, mixed with gray where it is unsure, shape (n_nodes, 3)."""
    from matplotlib.colors import to_rgb

    least = 1 / p.shape[1]
    sure = ((uncertainty.confidence(p) - least) / (1 - least))[:, None]
    pure = np.array([to_rgb(each) for each in colors(p.shape[1])])[uncertainty.most_probable(p)]
    return np.asarray(np.clip(sure * pure + (1 - sure) * to_rgb(MIDDLE), 0, 1))


def overview(
    spectrum: Spectrum,
    label_mean: NDArray[Any],
    *,
    labeled: NDArray[Any],
    y: NDArray[Any],
    prior_draw: NDArray[Any],
    title: str,
    classes: Sequence[str] | None = None,
) -> Figure:
    """Spectrum, a draw from the prior, and the posterior label means, side by side.

    Args:
        spectrum: the eigenpairs.
        label_mean: of two classes ``s_j``, shape (n_nodes,); of more the probability of each, (n_nodes, n_classes).
        labeled: the labeled nodes.
        y: their classes as numbers.
        prior_draw: u at every node.
        title: of the figure.
        classes: their names; by default -1 and +1, or numbers.
    """
    from matplotlib.figure import Figure

    signed = label_mean.ndim == 1
    names = classes or (("−1", "+1") if signed else [str(k) for k in range(label_mean.shape[1])])
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plot_spectrum(left, spectrum)
    size = np.abs(prior_draw).max()
    plot_embedding(
        middle, spectrum, prior_draw / size, labeled=labeled, y=y, classes=names,
        title="Before: one draw from the prior", color_label="u (scaled)",
    )  # fmt: skip
    after = "posterior mean of each label" if signed else "the likeliest class, pale where unsure"
    plot_embedding(
        right, spectrum, label_mean, labeled=labeled, y=y, classes=names, title=f"After: {after}",
        color_label=r"label mean $s_j$",
    )  # fmt: skip
    figure.suptitle(title)
    return figure
