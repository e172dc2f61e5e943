"""The record of Fig. 8 in; maps of label means with uncertain pixels in red, and means against concentration, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import style
from experiments.experiment import Record
from experiments.scenes import unpack

ROWS = {
    "projection": "projection",
    "approximation": "approximation",
    "exact": "exact",
    "constant": "projection with $q_0$\n($\\gamma$ = 1)",
    "gl": "Ginzburg-Landau\nmode",
}
TITLES = {
    ("plume", "clusters"): "synthetic plume, labels from spectral clustering",
    ("plume", "truth"): "synthetic plume, true labels",
    ("pines", "clusters"): "Indian Pines, labels from spectral clustering",
    ("pines", "truth"): "Indian Pines, true labels",
}
LINES = {
    "projection": (style.BLUE, "o"),
    "approximation": (style.ORANGE, "s"),
    "exact": (style.GREEN, "^"),
    "constant": (style.PURPLE, "D"),
}


def draw(record: Record, concentrations: tuple[float, ...]) -> Any:
    """Frames of the plume above; Indian Pines and the curves below."""
    import matplotlib.pyplot as plt

    runs = {(run["scene"], run["labels"]): run for run in record.values["runs"] if "missing" not in run}
    plt.close(style.subplots()[0])  # sets the shared style
    figure = plt.figure(figsize=(12, 10), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1))
    top.suptitle(
        r"label means $s_j$ from black ($-1$) to white ($+1$), red where $|s_j| < "
        + f"{record.config['red']}$; blue line: true edge of the gas",
        fontsize=11,
    )
    _plumes(top, record, runs["plume", "clusters"], runs["plume", "truth"])
    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.15))
    if pines := [runs[key] for key in list(TITLES)[2:] if key in runs]:
        _pines(left, record, pines)
    axes = right.subplots(2, 1, sharex=True)
    for ax, key in zip(axes, list(TITLES)[:2], strict=True):
        _curves(ax, runs[key], concentrations)
        ax.set_title(TITLES[key], fontsize=10)
    axes[1].set_xlabel("gas concentration (optical depth); dotted: edge of the plume")
    right.supylabel(r"$s_j$ at unlabeled pixels, median and quartiles", fontsize=10)
    right.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _plumes(part: Any, record: Record, clusters: dict[str, Any], truth: dict[str, Any]) -> None:
    """A row for each method; the last frames with labels from clustering, the last frame with true labels."""
    shape = tuple(clusters["shape"])
    edges = unpack(clusters["truth"], shape)
    axes = part.subplots(len(ROWS), shape[0] + 1)
    for row, (method, name) in zip(axes, ROWS.items(), strict=True):
        frames = [*unpack(_map(clusters, method), shape), unpack(_map(truth, method), shape)[-1]]
        for ax, s, edge in zip(row, frames, [*edges, edges[-1]], strict=True):
            _show(ax, s, 0.0 if method == "gl" else record.config["red"])
            ax.contour(edge, [0.5], colors=style.SKY, linewidths=0.8)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    for k, ax in enumerate(axes[0, :-1]):
        ax.set_title(f"clustering, frame {record.config['n_frames'] - shape[0] + k + 1}", fontsize=9)
    axes[0, -1].set_title(f"true labels, frame {record.config['n_frames']}", fontsize=9)


def _pines(part: Any, record: Record, runs: list[dict[str, Any]]) -> None:
    """A row for each kind of labels, a column for each method."""
    axes = part.subplots(len(runs), len(ROWS), squeeze=False)
    for row, run in zip(axes, runs, strict=True):
        for ax, (method, name) in zip(row, ROWS.items(), strict=True):
            _show(
                ax,
                unpack(_map(run, method), tuple(run["shape"]))[0],
                0.0 if method == "gl" else record.config["red"],
            )
            ax.set_title(name.replace(" with", "\nwith").replace("\n($", " ($"), fontsize=7)
        row[0].set_ylabel("clustering" if run["labels"] == "clusters" else "true labels", fontsize=9)
    part.suptitle("Indian Pines: tilled soil (+1) against green (−1)", fontsize=10)


def _map(run: dict[str, Any], method: str) -> str:
    return run["gl"]["map"] if method == "gl" else run["methods"][method]["map"]


def _show(ax: Any, s: Any, limit: float) -> None:
    ax.imshow(_colors(s, limit), interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)


def _colors(s: Any, limit: float) -> Any:
    """Gray by s, red where it is uncertain, as RGB."""
    gray = np.repeat((s[..., None] + 1) / 2, 3, axis=-1)
    red = np.array([int(style.VERMILION[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where((np.abs(s) < limit)[..., None], red, gray)


def _curves(ax: Any, run: dict[str, Any], concentrations: tuple[float, ...]) -> None:
    """Label means against concentration."""
    limits = np.array(concentrations)
    middles = np.append((limits[:-2] + limits[1:-1]) / 2, 1.2 * limits[-2])
    for i, (method, (color, marker)) in enumerate(LINES.items()):
        bins = run["methods"][method]["by_concentration"]
        kept = [k for k, each in enumerate(bins) if each is not None]
        low, middle, high = np.array([bins[k][:3] for k in kept]).T
        settings = {
            "color": color,
            "marker": marker,
            "label": ROWS[method].replace("\n", " "),
            "markersize": 4,
            "capsize": 2,
        }
        ax.errorbar(
            middles[kept] * 1.04 ** (i - 1), middle, [middle - low, high - middle], linewidth=1.2, **settings
        )
    ax.axvline(0.1, color=style.GRAY, linestyle=":", linewidth=1)
    ax.set(xscale="log", ylim=(-1.08, 1.08))
