"""One look for all figures: the colors of Okabe and Ito, which people with any color vision tell apart."""

from __future__ import annotations

from typing import Any

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, YELLOW, GRAY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#666666",
)  # fmt: skip
COLORS = {"probit": BLUE, "level_set": VERMILION, "ginzburg_landau": GREEN}
MARKERS = {"probit": "o", "level_set": "s", "ginzburg_landau": "^"}
NAMES = {"probit": "probit", "level_set": "Bayesian level-set", "ginzburg_landau": "Ginzburg-Landau"}


def subplots(
    n_rows: int = 1, n_columns: int = 1, *, size: tuple[float, float] = (4.2, 3.2), **options: Any
) -> Any:
    """A figure without a window and its axes, each of `size` inches, laid out so that nothing overlaps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True, "legend.frameon": False})
    figsize = (size[0] * n_columns, size[1] * n_rows)
    return plt.subplots(n_rows, n_columns, figsize=figsize, layout="constrained", **options)


def log_ticks(ax: Any, values: Any) -> None:
    """A logarithmic axis with these numbers on it and no others."""
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
    ax.minorticks_off()


def curve(ax: Any, x: Any, mean: Any, error: Any, model: str, **options: Any) -> None:
    """A mean with error bars, in the color of its model."""
    settings = {"color": COLORS[model], "marker": MARKERS[model], "label": NAMES[model], **options}
    ax.errorbar(x, mean, error, markersize=4.5, capsize=2.5, linewidth=1.3, **settings)
